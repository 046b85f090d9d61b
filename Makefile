# The front door. `make demo` and `make test` work on a fresh Debian 12 machine: they install what
# is missing, build, and run.
PRESET ?= release
BUILD := build/$(PRESET)
HALFTONE := $(BUILD)/apps/halftone/halftone
LOG := build/configure-$(PRESET).log

.PHONY: all demo test build deps install format check-docs clean help

all: build

help:
	@echo "make demo         build the command and write text with both bundled models in each format"
	@echo "make test         build everything and run the tests (PRESET=debug, asan or tsan, CMAKE_ARGS=...)"
	@echo "make build        build everything"
	@echo "make install      install into DESTDIR/PREFIX (default /usr/local)"
	@echo "make format       run clang-format over the sources"
	@echo "make check-docs   check that every path and command of the documentation is true"
	@echo "make clean        remove the build folders"

deps:
	@scripts/install-deps.sh

configure: deps
	@mkdir -p build
	@cmake --preset $(PRESET) $(CMAKE_ARGS) > $(LOG) 2>&1 || { cat $(LOG); exit 1; }
.PHONY: configure

build: configure
	cmake --build --preset $(PRESET)

demo: configure
	cmake --build --preset $(PRESET) --target halftone_command
	scripts/demo.sh $(HALFTONE)

test: build
	ctest --preset $(PRESET)

PREFIX ?= /usr/local
install: build
	DESTDIR="$(DESTDIR)" cmake --install $(BUILD) --prefix $(PREFIX)

format:
	git ls-files '*.h' '*.cpp' '*.cu' '*.cuh' | xargs clang-format-14 -i

check-docs: build
	scripts/check_docs.py $(HALFTONE)

clean:
	rm -rf build
