# Compile options and the ISA levels of the CPU kernels.

add_library(halftone_options INTERFACE)
# nvcc takes these in another form: HALFTONE_CUDA_FLAGS.
function(halftone_cxx_options)
  target_compile_options(halftone_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${ARGN}>")
endfunction()
halftone_cxx_options(-Wall -Wextra -Wpedantic)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_GREATER_EQUAL 13)
  # It takes every reference returned by a function that is given a temporary for one into it.
  halftone_cxx_options(-Wno-dangling-reference)
endif()
if(HALFTONE_WERROR)
  halftone_cxx_options(-Werror)
endif()
# What waits for the library, and not the other way round, is half of what there is to compile: it
# is compiled for -O1. There GCC 12 takes the short form of a std::string for the long one.
set(HALFTONE_QUICK_OPTIONS "$<$<AND:$<CONFIG:Release>,$<COMPILE_LANGUAGE:CXX>>:-O1>")
foreach(mistaken array-bounds stringop-overflow stringop-overread restrict)
  list(APPEND HALFTONE_QUICK_OPTIONS "$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-${mistaken}>")
endforeach()
# One rounding rule at every level: a*b+c is fused only where a kernel says so.
halftone_cxx_options(-ffp-contract=off)
if(HALFTONE_SANITIZE)
  halftone_cxx_options(-fsanitize=${HALFTONE_SANITIZE} -fno-omit-frame-pointer
                       -fno-sanitize-recover=all)
  target_link_options(halftone_options INTERFACE -fsanitize=${HALFTONE_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    # clang's checks of every pointer, and asan's written out at every access, take four times as
    # long to compile as the kernels themselves. g++ keeps them all.
    halftone_cxx_options(-fno-sanitize=null,alignment,object-size,pointer-overflow,vptr)
    if(HALFTONE_SANITIZE MATCHES "address")
      halftone_cxx_options("SHELL:-mllvm -asan-instrumentation-with-call-threshold=0")
      # To see the use of a frame after its return, clang's asan keeps frames in a second stack of
      # 3 MB. Each simulated warp runs on a stack of its own, and mapping a second one for each took
      # five sixths of the time of all tests. g++ has this off, too.
      halftone_cxx_options(-fsanitize-address-use-after-return=never)
    endif()
  endif()
endif()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  set(HALFTONE_LEVELS baseline avx2 avx512 avx512_bf16)
  set(HALFTONE_FLAGS_baseline -march=x86-64-v2)
  set(HALFTONE_FLAGS_avx2 -march=x86-64-v3)
  set(HALFTONE_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
  set(HALFTONE_FLAGS_avx512_bf16 ${HALFTONE_FLAGS_avx512}
      -mavx512vnni -mavx512bf16 -mavx512vbmi -mavx512vbmi2 -mavx512bitalg)
else()
  set(HALFTONE_LEVELS baseline)
  set(HALFTONE_FLAGS_baseline "")
endif()
# Sanitizers see the first level and one more, since the code of the others is the same templates with
# other vectors: the last where this processor has it, AVX2 elsewhere. The tables' rows of a level that
# is left out call the next one that such a processor has.
set(HALFTONE_LEVEL_NAMES "")
if(HALFTONE_SANITIZE AND "avx512_bf16" IN_LIST HALFTONE_LEVELS)
  set(has_bf16 "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo has_bf16 REGEX "avx512_bf16.*avx512_?vbmi" LIMIT_COUNT 1)
  endif()
  if(has_bf16)
    set(HALFTONE_LEVELS baseline avx512_bf16)
    set(HALFTONE_LEVEL_NAMES cpu_avx2=cpu_baseline cpu_avx512=cpu_avx512_bf16
        HALFTONE_SECOND_LEVEL=avx512_bf16)
  else()
    set(HALFTONE_LEVELS baseline avx2)
    # bf16_kernels: of the last level alone
    set(HALFTONE_LEVEL_NAMES cpu_avx512=cpu_avx2 cpu_avx512_bf16=cpu_avx2 bf16_kernels=f32_kernels
        HALFTONE_SECOND_LEVEL=avx2)
  endif()
endif()

# halftone_level_sources(file...): compiles each file once per ISA level, with
# HALFTONE_LEVEL defined as the level's name. Such a file keeps everything in
# `namespace halftone::HALFTONE_LEVEL` and includes no header with functions that the linker could
# merge with those of another level.
function(halftone_level_sources)
  foreach(file IN LISTS ARGN)
    list(APPEND absolute ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY HALFTONE_LEVEL_SOURCES ${absolute})
endfunction()

# Adds the level objects to `target`.
function(halftone_link_levels target)
  get_property(sources GLOBAL PROPERTY HALFTONE_LEVEL_SOURCES)
  if(NOT sources)
    return()
  endif()
  target_compile_definitions(${target} PRIVATE ${HALFTONE_LEVEL_NAMES})
  foreach(level IN LISTS HALFTONE_LEVELS)
    set(objects halftone_level_${level})
    add_library(${objects} OBJECT ${sources})
    target_compile_definitions(${objects} PRIVATE HALFTONE_LEVEL=cpu_${level})
    target_compile_options(${objects} PRIVATE ${HALFTONE_FLAGS_${level}})
    if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
      # LLVM 16's vector-combine pass recurses without end on the attention kernels; the code is
      # vectors already, so nothing is lost without it.
      target_compile_options(${objects} PRIVATE "SHELL:-mllvm -disable-vector-combine")
    endif()
    target_link_libraries(${objects} PRIVATE halftone_options)
    # GCC 12 takes the undefined registers inside its own AVX-512 intrinsics for ours.
    target_compile_options(${objects} PRIVATE
                           $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)
    target_include_directories(${objects} PRIVATE ${PROJECT_SOURCE_DIR}/include
                               ${PROJECT_SOURCE_DIR}/src)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:${objects}>)
  endforeach()
endfunction()

# halftone_test_program(stem source... [| source...]...): a program of tests. Reading GoogleTest's headers
# costs as much as a small test of ours: once is enough. Those of the library cost no less: sources between
# two bars compile as one (HALFTONE_UNITY), so names in them must differ, also in anonymous namespaces.
function(halftone_test_program stem)
  set(group 0)
  set(sources "")
  foreach(source IN LISTS ARGN)
    if(source STREQUAL "|")
      math(EXPR group "${group} + 1")
    else()
      list(APPEND sources ${source})
      list(APPEND sources_${group} ${source})
    endif()
  endforeach()
  add_executable(${stem} ${sources})
  if(HALFTONE_UNITY AND group)
    foreach(part RANGE ${group})
      set_source_files_properties(${sources_${part}} PROPERTIES UNITY_GROUP part${part})
    endforeach()
    set_target_properties(${stem} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
  endif()
  target_link_libraries(${stem} PRIVATE halftone_test_main)
  target_precompile_headers(${stem} REUSE_FROM halftone_test_headers)
endfunction()

# halftone_test(stem source...): a GoogleTest executable named <stem>, one ctest entry.
function(halftone_test stem)
  halftone_test_program(${stem} ${ARGN})
  add_test(NAME ${stem} COMMAND ${stem})
endfunction()

# halftone_simulated_test(stem source...): the same for kernels on simulated GPUs. Sanitizers are spared
# them: what they would find in the simulator, tests/sim and the tests of each family's devices show them.
function(halftone_simulated_test stem)
  if(NOT HALFTONE_SANITIZE)
    halftone_test(${stem} ${ARGN})
  endif()
endfunction()
