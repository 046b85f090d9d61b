// The assembly of wgmma.mma_async. Its text names every register of D, so there is one overload for
// each size of D; the lists grow out of each other. Included by wgmma.h, in GPU passes.
#pragma once
#include <cstdint>

#include "hw/mnemonic.h"
#include "hw/target.h"

namespace halftone::hw {

// clang-format off
// Names of the registers of D in the text, and D's operands.
#define HT_NAMES_2 "%0, %1"
#define HT_NAMES_4 HT_NAMES_2 ", %2, %3"
#define HT_NAMES_6 HT_NAMES_4 ", %4, %5"
#define HT_NAMES_8 HT_NAMES_6 ", %6, %7"
#define HT_NAMES_10 HT_NAMES_8 ", %8, %9"
#define HT_NAMES_12 HT_NAMES_10 ", %10, %11"
#define HT_NAMES_14 HT_NAMES_12 ", %12, %13"
#define HT_NAMES_16 HT_NAMES_14 ", %14, %15"
#define HT_NAMES_18 HT_NAMES_16 ", %16, %17"
#define HT_NAMES_20 HT_NAMES_18 ", %18, %19"
#define HT_NAMES_22 HT_NAMES_20 ", %20, %21"
#define HT_NAMES_24 HT_NAMES_22 ", %22, %23"
#define HT_NAMES_26 HT_NAMES_24 ", %24, %25"
#define HT_NAMES_28 HT_NAMES_26 ", %26, %27"
#define HT_NAMES_30 HT_NAMES_28 ", %28, %29"
#define HT_NAMES_32 HT_NAMES_30 ", %30, %31"
#define HT_NAMES_34 HT_NAMES_32 ", %32, %33"
#define HT_NAMES_36 HT_NAMES_34 ", %34, %35"
#define HT_NAMES_38 HT_NAMES_36 ", %36, %37"
#define HT_NAMES_40 HT_NAMES_38 ", %38, %39"
#define HT_NAMES_42 HT_NAMES_40 ", %40, %41"
#define HT_NAMES_44 HT_NAMES_42 ", %42, %43"
#define HT_NAMES_46 HT_NAMES_44 ", %44, %45"
#define HT_NAMES_48 HT_NAMES_46 ", %46, %47"
#define HT_NAMES_50 HT_NAMES_48 ", %48, %49"
#define HT_NAMES_52 HT_NAMES_50 ", %50, %51"
#define HT_NAMES_54 HT_NAMES_52 ", %52, %53"
#define HT_NAMES_56 HT_NAMES_54 ", %54, %55"
#define HT_NAMES_58 HT_NAMES_56 ", %56, %57"
#define HT_NAMES_60 HT_NAMES_58 ", %58, %59"
#define HT_NAMES_62 HT_NAMES_60 ", %60, %61"
#define HT_NAMES_64 HT_NAMES_62 ", %62, %63"
#define HT_NAMES_68 HT_NAMES_64 ", %64, %65, %66, %67"
#define HT_NAMES_72 HT_NAMES_68 ", %68, %69, %70, %71"
#define HT_NAMES_76 HT_NAMES_72 ", %72, %73, %74, %75"
#define HT_NAMES_80 HT_NAMES_76 ", %76, %77, %78, %79"
#define HT_NAMES_84 HT_NAMES_80 ", %80, %81, %82, %83"
#define HT_NAMES_88 HT_NAMES_84 ", %84, %85, %86, %87"
#define HT_NAMES_92 HT_NAMES_88 ", %88, %89, %90, %91"
#define HT_NAMES_96 HT_NAMES_92 ", %92, %93, %94, %95"
#define HT_NAMES_100 HT_NAMES_96 ", %96, %97, %98, %99"
#define HT_NAMES_104 HT_NAMES_100 ", %100, %101, %102, %103"
#define HT_NAMES_108 HT_NAMES_104 ", %104, %105, %106, %107"
#define HT_NAMES_112 HT_NAMES_108 ", %108, %109, %110, %111"
#define HT_NAMES_116 HT_NAMES_112 ", %112, %113, %114, %115"
#define HT_NAMES_120 HT_NAMES_116 ", %116, %117, %118, %119"
#define HT_NAMES_124 HT_NAMES_120 ", %120, %121, %122, %123"
#define HT_NAMES_128 HT_NAMES_124 ", %124, %125, %126, %127"
#define HT_D_2(c) "+" c(d[0]), "+" c(d[1])
#define HT_D_4(c) HT_D_2(c), "+" c(d[2]), "+" c(d[3])
#define HT_D_6(c) HT_D_4(c), "+" c(d[4]), "+" c(d[5])
#define HT_D_8(c) HT_D_6(c), "+" c(d[6]), "+" c(d[7])
#define HT_D_10(c) HT_D_8(c), "+" c(d[8]), "+" c(d[9])
#define HT_D_12(c) HT_D_10(c), "+" c(d[10]), "+" c(d[11])
#define HT_D_14(c) HT_D_12(c), "+" c(d[12]), "+" c(d[13])
#define HT_D_16(c) HT_D_14(c), "+" c(d[14]), "+" c(d[15])
#define HT_D_18(c) HT_D_16(c), "+" c(d[16]), "+" c(d[17])
#define HT_D_20(c) HT_D_18(c), "+" c(d[18]), "+" c(d[19])
#define HT_D_22(c) HT_D_20(c), "+" c(d[20]), "+" c(d[21])
#define HT_D_24(c) HT_D_22(c), "+" c(d[22]), "+" c(d[23])
#define HT_D_26(c) HT_D_24(c), "+" c(d[24]), "+" c(d[25])
#define HT_D_28(c) HT_D_26(c), "+" c(d[26]), "+" c(d[27])
#define HT_D_30(c) HT_D_28(c), "+" c(d[28]), "+" c(d[29])
#define HT_D_32(c) HT_D_30(c), "+" c(d[30]), "+" c(d[31])
#define HT_D_34(c) HT_D_32(c), "+" c(d[32]), "+" c(d[33])
#define HT_D_36(c) HT_D_34(c), "+" c(d[34]), "+" c(d[35])
#define HT_D_38(c) HT_D_36(c), "+" c(d[36]), "+" c(d[37])
#define HT_D_40(c) HT_D_38(c), "+" c(d[38]), "+" c(d[39])
#define HT_D_42(c) HT_D_40(c), "+" c(d[40]), "+" c(d[41])
#define HT_D_44(c) HT_D_42(c), "+" c(d[42]), "+" c(d[43])
#define HT_D_46(c) HT_D_44(c), "+" c(d[44]), "+" c(d[45])
#define HT_D_48(c) HT_D_46(c), "+" c(d[46]), "+" c(d[47])
#define HT_D_50(c) HT_D_48(c), "+" c(d[48]), "+" c(d[49])
#define HT_D_52(c) HT_D_50(c), "+" c(d[50]), "+" c(d[51])
#define HT_D_54(c) HT_D_52(c), "+" c(d[52]), "+" c(d[53])
#define HT_D_56(c) HT_D_54(c), "+" c(d[54]), "+" c(d[55])
#define HT_D_58(c) HT_D_56(c), "+" c(d[56]), "+" c(d[57])
#define HT_D_60(c) HT_D_58(c), "+" c(d[58]), "+" c(d[59])
#define HT_D_62(c) HT_D_60(c), "+" c(d[60]), "+" c(d[61])
#define HT_D_64(c) HT_D_62(c), "+" c(d[62]), "+" c(d[63])
#define HT_D_68(c) HT_D_64(c), "+" c(d[64]), "+" c(d[65]), "+" c(d[66]), "+" c(d[67])
#define HT_D_72(c) HT_D_68(c), "+" c(d[68]), "+" c(d[69]), "+" c(d[70]), "+" c(d[71])
#define HT_D_76(c) HT_D_72(c), "+" c(d[72]), "+" c(d[73]), "+" c(d[74]), "+" c(d[75])
#define HT_D_80(c) HT_D_76(c), "+" c(d[76]), "+" c(d[77]), "+" c(d[78]), "+" c(d[79])
#define HT_D_84(c) HT_D_80(c), "+" c(d[80]), "+" c(d[81]), "+" c(d[82]), "+" c(d[83])
#define HT_D_88(c) HT_D_84(c), "+" c(d[84]), "+" c(d[85]), "+" c(d[86]), "+" c(d[87])
#define HT_D_92(c) HT_D_88(c), "+" c(d[88]), "+" c(d[89]), "+" c(d[90]), "+" c(d[91])
#define HT_D_96(c) HT_D_92(c), "+" c(d[92]), "+" c(d[93]), "+" c(d[94]), "+" c(d[95])
#define HT_D_100(c) HT_D_96(c), "+" c(d[96]), "+" c(d[97]), "+" c(d[98]), "+" c(d[99])
#define HT_D_104(c) HT_D_100(c), "+" c(d[100]), "+" c(d[101]), "+" c(d[102]), "+" c(d[103])
#define HT_D_108(c) HT_D_104(c), "+" c(d[104]), "+" c(d[105]), "+" c(d[106]), "+" c(d[107])
#define HT_D_112(c) HT_D_108(c), "+" c(d[108]), "+" c(d[109]), "+" c(d[110]), "+" c(d[111])
#define HT_D_116(c) HT_D_112(c), "+" c(d[112]), "+" c(d[113]), "+" c(d[114]), "+" c(d[115])
#define HT_D_120(c) HT_D_116(c), "+" c(d[116]), "+" c(d[117]), "+" c(d[118]), "+" c(d[119])
#define HT_D_124(c) HT_D_120(c), "+" c(d[120]), "+" c(d[121]), "+" c(d[122]), "+" c(d[123])
#define HT_D_128(c) HT_D_124(c), "+" c(d[124]), "+" c(d[125]), "+" c(d[126]), "+" c(d[127])

// n0 to n7: the numbers after D's. A in shared memory, then A in registers.
#define HT_WGMMA(T, c, R, n0, n1, n2, n3, n4, n5, n6, n7)                                           \
  template <Text kName, Text kTail>                                                                \
  HT_DEVICE void wgmma_assembly(T (&d)[R], uint64_t a, uint64_t b, uint32_t accumulate) {           \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n2 ", 0;\n%" #n3 " {" HT_NAMES_##R "}, %" #n0 \
                 ", %" #n1 ", p%" #n4 ";\n}"                                                       \
                 : HT_D_##R(c)                                                                     \
                 : "l"(a), "l"(b), "r"(accumulate), "C"(Mnemonic<kName>::text),                    \
                   "C"(Mnemonic<kTail>::text)                                                      \
                 : "memory");                                                                      \
  }                                                                                                \
  template <Text kName, Text kTail>                                                                \
  HT_DEVICE void wgmma_assembly(T (&d)[R], const uint32_t (&a)[4], uint64_t b,                      \
                                uint32_t accumulate) {                                             \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %" #n5 ", 0;\n%" #n6 " {" HT_NAMES_##R "}, {%" #n0 \
                 ", %" #n1 ", %" #n2 ", %" #n3 "}, %" #n4 ", p%" #n7 ";\n}"                        \
                 : HT_D_##R(c)                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),            \
                   "C"(Mnemonic<kName>::text), "C"(Mnemonic<kTail>::text)                          \
                 : "memory");                                                                      \
  }
// D of f16 pairs, and of f32 and s32.
#define HT_WGMMA_F16(R, ...) HT_WGMMA(uint32_t, "r", R, __VA_ARGS__)
#define HT_WGMMA_F32(R, ...) HT_WGMMA(float, "f", R, __VA_ARGS__) HT_WGMMA(int32_t, "r", R, __VA_ARGS__)
#define HT_WGMMA_ALL(R, ...) HT_WGMMA_F16(R, __VA_ARGS__) HT_WGMMA_F32(R, __VA_ARGS__)

HT_WGMMA_F16(2, 2, 3, 4, 5, 6, 7, 8, 9)
HT_WGMMA_ALL(4, 4, 5, 6, 7, 8, 9, 10, 11)
HT_WGMMA_F16(6, 6, 7, 8, 9, 10, 11, 12, 13)
HT_WGMMA_ALL(8, 8, 9, 10, 11, 12, 13, 14, 15)
HT_WGMMA_F16(10, 10, 11, 12, 13, 14, 15, 16, 17)
HT_WGMMA_ALL(12, 12, 13, 14, 15, 16, 17, 18, 19)
HT_WGMMA_F16(14, 14, 15, 16, 17, 18, 19, 20, 21)
HT_WGMMA_ALL(16, 16, 17, 18, 19, 20, 21, 22, 23)
HT_WGMMA_F16(18, 18, 19, 20, 21, 22, 23, 24, 25)
HT_WGMMA_ALL(20, 20, 21, 22, 23, 24, 25, 26, 27)
HT_WGMMA_F16(22, 22, 23, 24, 25, 26, 27, 28, 29)
HT_WGMMA_ALL(24, 24, 25, 26, 27, 28, 29, 30, 31)
HT_WGMMA_F16(26, 26, 27, 28, 29, 30, 31, 32, 33)
HT_WGMMA_ALL(28, 28, 29, 30, 31, 32, 33, 34, 35)
HT_WGMMA_F16(30, 30, 31, 32, 33, 34, 35, 36, 37)
HT_WGMMA_ALL(32, 32, 33, 34, 35, 36, 37, 38, 39)
HT_WGMMA_F16(34, 34, 35, 36, 37, 38, 39, 40, 41)
HT_WGMMA_ALL(36, 36, 37, 38, 39, 40, 41, 42, 43)
HT_WGMMA_F16(38, 38, 39, 40, 41, 42, 43, 44, 45)
HT_WGMMA_ALL(40, 40, 41, 42, 43, 44, 45, 46, 47)
HT_WGMMA_F16(42, 42, 43, 44, 45, 46, 47, 48, 49)
HT_WGMMA_ALL(44, 44, 45, 46, 47, 48, 49, 50, 51)
HT_WGMMA_F16(46, 46, 47, 48, 49, 50, 51, 52, 53)
HT_WGMMA_ALL(48, 48, 49, 50, 51, 52, 53, 54, 55)
HT_WGMMA_F16(50, 50, 51, 52, 53, 54, 55, 56, 57)
HT_WGMMA_ALL(52, 52, 53, 54, 55, 56, 57, 58, 59)
HT_WGMMA_F16(54, 54, 55, 56, 57, 58, 59, 60, 61)
HT_WGMMA_ALL(56, 56, 57, 58, 59, 60, 61, 62, 63)
HT_WGMMA_F16(58, 58, 59, 60, 61, 62, 63, 64, 65)
HT_WGMMA_ALL(60, 60, 61, 62, 63, 64, 65, 66, 67)
HT_WGMMA_F16(62, 62, 63, 64, 65, 66, 67, 68, 69)
HT_WGMMA_ALL(64, 64, 65, 66, 67, 68, 69, 70, 71)
HT_WGMMA_F32(68, 68, 69, 70, 71, 72, 73, 74, 75)
HT_WGMMA_F32(72, 72, 73, 74, 75, 76, 77, 78, 79)
HT_WGMMA_F32(76, 76, 77, 78, 79, 80, 81, 82, 83)
HT_WGMMA_F32(80, 80, 81, 82, 83, 84, 85, 86, 87)
HT_WGMMA_F32(84, 84, 85, 86, 87, 88, 89, 90, 91)
HT_WGMMA_F32(88, 88, 89, 90, 91, 92, 93, 94, 95)
HT_WGMMA_F32(92, 92, 93, 94, 95, 96, 97, 98, 99)
HT_WGMMA_F32(96, 96, 97, 98, 99, 100, 101, 102, 103)
HT_WGMMA_F32(100, 100, 101, 102, 103, 104, 105, 106, 107)
HT_WGMMA_F32(104, 104, 105, 106, 107, 108, 109, 110, 111)
HT_WGMMA_F32(108, 108, 109, 110, 111, 112, 113, 114, 115)
HT_WGMMA_F32(112, 112, 113, 114, 115, 116, 117, 118, 119)
HT_WGMMA_F32(116, 116, 117, 118, 119, 120, 121, 122, 123)
HT_WGMMA_F32(120, 120, 121, 122, 123, 124, 125, 126, 127)
HT_WGMMA_F32(124, 124, 125, 126, 127, 128, 129, 130, 131)
HT_WGMMA_F32(128, 128, 129, 130, 131, 132, 133, 134, 135)
// clang-format on

#undef HT_WGMMA_ALL
#undef HT_WGMMA_F32
#undef HT_WGMMA_F16
#undef HT_WGMMA

}  // namespace halftone::hw
