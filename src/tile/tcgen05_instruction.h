// The instruction descriptor of tcgen05.mma: 32 bits that name types, majors and shape.
#pragma once
#include "tile/shared_tile.h"

namespace halftone::tile {

enum class Tcgen05Kind : uint8_t { f16, tf32, f8f6f4, i8, mxf8f6f4, mxf4, mxf4nvf4 };
enum class Tcgen05Type : uint8_t { f16, bf16, tf32, e4m3, e5m2, e2m3, e3m2, e2m1, u8, s8 };
enum class Tcgen05Result : uint8_t { f16, f32, s32 };
enum class Tcgen05Scale : uint8_t { ue4m3, ue8m0 };

HT_HOST_DEVICE bool is_block_scaled(Tcgen05Kind k) { return k >= Tcgen05Kind::mxf8f6f4; }
HT_HOST_DEVICE bool is_packed_fp4(Tcgen05Kind k) { return k >= Tcgen05Kind::mxf4; }

// The K of one instruction: 32 bytes of operand.
HT_HOST_DEVICE int tcgen05_k(Tcgen05Kind k) {
  return k == Tcgen05Kind::f16 ? 16 : k == Tcgen05Kind::tf32 ? 8 : is_packed_fp4(k) ? 64 : 32;
}

struct Tcgen05Instruction {
  Tcgen05Kind kind = Tcgen05Kind::f16;
  Tcgen05Type a = Tcgen05Type::bf16, b = Tcgen05Type::bf16;
  Tcgen05Result d = Tcgen05Result::f32;
  Major a_major = Major::k, b_major = Major::k;
  int m = 128, n = 128;
  int ctas = 1;                              // of the pair; not in the descriptor's bits
  bool weight_stationary = false;            // the .ws form; not in the descriptor's bits
  bool negate_a = false, negate_b = false;   // floating-point kinds
  bool saturate = false;                     // i8
  Tcgen05Scale scale = Tcgen05Scale::ue8m0;  // block-scaled kinds
  int a_scale_id = 0, b_scale_id = 0;        // first scale byte in tensor memory

  // The broken rule, or null: types and shapes that tcgen05.mma has.
  HT_HOST_DEVICE const char* broken_rule() const {
    if (!has_type(kind, a) || !has_type(kind, b)) return "the kind has no such operand type";
    if (kind == Tcgen05Kind::f16 && a != b) return "kind::f16 takes A and B of one type";
    if ((kind == Tcgen05Kind::i8) != (d == Tcgen05Result::s32)) return "S32 results are kind::i8's";
    if (d == Tcgen05Result::f16 && kind != Tcgen05Kind::f16 && kind != Tcgen05Kind::f8f6f4)
      return "FP16 results need kind::f16 or kind::f8f6f4";
    if (is_packed_fp4(kind) && (a_major != Major::k || b_major != Major::k))
      return "packed FP4 operands are K-major";
    if (kind == Tcgen05Kind::i8 && (negate_a || negate_b)) return "kind::i8 cannot negate";
    if (saturate && kind != Tcgen05Kind::i8) return "saturation is kind::i8's";
    if (ctas != 1 && ctas != 2) return "one or two CTAs";
    return is_block_scaled(kind) ? broken_scaled_shape() : broken_shape();
  }
  HT_HOST_DEVICE bool valid() const { return broken_rule() == nullptr; }

  HT_HOST_DEVICE uint32_t encode() const {
    const uint32_t majors =
        (a_major == Major::mn ? 1u << 15 : 0) | (b_major == Major::mn ? 1u << 16 : 0);
    const uint32_t common = type_bits(kind, a) << 7 | type_bits(kind, b) << 10 |
                            uint32_t{negate_a} << 13 | uint32_t{negate_b} << 14 | majors |
                            static_cast<uint32_t>(n) >> 3 << 17;
    if (is_block_scaled(kind)) {
      return common | static_cast<uint32_t>(b_scale_id) << 4 | static_cast<uint32_t>(scale) << 23 |
             static_cast<uint32_t>(m) >> 7 << 27 | static_cast<uint32_t>(a_scale_id) << 29;
    }
    return common | uint32_t{saturate} << 3 | static_cast<uint32_t>(d) << 4 |
           static_cast<uint32_t>(m) >> 4 << 24;
  }

  // `bits` of an instruction of kind `kind`; what they do not say keeps its default.
  HT_HOST_DEVICE static Tcgen05Instruction decode(uint32_t bits, Tcgen05Kind kind) {
    Tcgen05Instruction i;
    i.kind = kind;
    i.a = type_of(kind, bits >> 7 & 7);
    i.b = type_of(kind, is_packed_fp4(kind) ? bits >> 10 & 3 : bits >> 10 & 7);
    i.negate_a = bits >> 13 & 1, i.negate_b = bits >> 14 & 1;
    i.a_major = bits >> 15 & 1 ? Major::mn : Major::k;
    i.b_major = bits >> 16 & 1 ? Major::mn : Major::k;
    i.n = static_cast<int>(bits >> 17 & 0x3F) << 3;
    if (is_block_scaled(kind)) {
      i.b_scale_id = static_cast<int>(bits >> 4 & 3);
      i.a_scale_id = static_cast<int>(bits >> 29 & 3);
      i.scale = static_cast<Tcgen05Scale>(bits >> 23 & 1);
      i.m = static_cast<int>(bits >> 27 & 3) << 7;
    } else {
      i.saturate = bits >> 3 & 1;
      i.d = static_cast<Tcgen05Result>(bits >> 4 & 3);
      i.m = static_cast<int>(bits >> 24 & 0x1F) << 4;
    }
    return i;
  }
  bool operator==(const Tcgen05Instruction&) const = default;

  HT_HOST_DEVICE static bool has_type(Tcgen05Kind kind, Tcgen05Type t) {
    switch (kind) {
      case Tcgen05Kind::f16:
        return t == Tcgen05Type::f16 || t == Tcgen05Type::bf16;
      case Tcgen05Kind::tf32:
        return t == Tcgen05Type::tf32;
      case Tcgen05Kind::i8:
        return t == Tcgen05Type::u8 || t == Tcgen05Type::s8;
      case Tcgen05Kind::f8f6f4:
      case Tcgen05Kind::mxf8f6f4:
        return t >= Tcgen05Type::e4m3 && t <= Tcgen05Type::e2m1;
      case Tcgen05Kind::mxf4:
      case Tcgen05Kind::mxf4nvf4:
        return t == Tcgen05Type::e2m1;
    }
    return false;
  }

 private:
  // f16 0, bf16 1 | tf32 2 | e4m3 0, e5m2 1, e2m3 3, e3m2 4, e2m1 5 | u8 0, s8 1 | packed e2m1 1.
  HT_HOST_DEVICE static uint32_t type_bits(Tcgen05Kind kind, Tcgen05Type t) {
    if (is_packed_fp4(kind)) return 1;
    switch (t) {
      case Tcgen05Type::f16:
      case Tcgen05Type::e4m3:
      case Tcgen05Type::u8:
        return 0;
      case Tcgen05Type::bf16:
      case Tcgen05Type::e5m2:
      case Tcgen05Type::s8:
        return 1;
      case Tcgen05Type::tf32:
        return 2;
      case Tcgen05Type::e2m3:
        return 3;
      case Tcgen05Type::e3m2:
        return 4;
      case Tcgen05Type::e2m1:
        return 5;
    }
    return 0;
  }
  HT_HOST_DEVICE static Tcgen05Type type_of(Tcgen05Kind kind, uint32_t bits) {
    for (uint8_t t = 0; t <= static_cast<uint8_t>(Tcgen05Type::s8); ++t) {
      const auto type = static_cast<Tcgen05Type>(t);
      if (has_type(kind, type) && type_bits(kind, type) == bits) return type;
    }
    return Tcgen05Type::f16;  // no type of this kind: broken_rule() says so, except for f16
  }

  HT_HOST_DEVICE const char* broken_shape() const {
    if (weight_stationary) {
      if (ctas != 1) return "the .ws form runs on one CTA";
      if (m != 32 && m != 64 && m != 128) return ".ws: M is 32, 64 or 128";
      if (n != 64 && n != 128 && n != 256) return ".ws: N is 64, 128 or 256";
      return nullptr;
    }
    if (ctas == 1 && m != 64 && m != 128) return "one CTA: M is 64 or 128";
    if (ctas == 2 && m != 128 && m != 256) return "two CTAs: M is 128 or 256";
    if (n < 8 || n > 256) return "N is from 8 to 256";
    if (ctas == 2) {
      const int step = kind == Tcgen05Kind::i8 ? 32 : 16;
      return n % step == 0 ? nullptr : "two CTAs: N is a multiple of 16, of 32 for kind::i8";
    }
    if (kind == Tcgen05Kind::i8) {
      return n == 8 || n == 24 || n % 16 == 0 ? nullptr
                                              : "kind::i8: N is 8, 16, 24 or a multiple of 16";
    }
    return n % 8 == 0 ? nullptr : "N is a multiple of 8";
  }
  HT_HOST_DEVICE const char* broken_scaled_shape() const {
    if (weight_stationary) return "block scales exclude the .ws form";
    if (ctas == 1 && m != 128) return "block scales, one CTA: M is 128";
    if (ctas == 2 && m != 128 && m != 256) return "block scales, two CTAs: M is 128 or 256";
    const int step = ctas == 2 ? 16 : 8;
    if (n < step || n > 256 || n % step != 0)
      return "block scales: N is a multiple of 8 (16 for two CTAs) up to 256";
    if (kind != Tcgen05Kind::mxf4nvf4 && scale != Tcgen05Scale::ue8m0)
      return "kinds mxf8f6f4 and mxf4 take UE8M0 scales";
    const int ids = is_packed_fp4(kind) ? 2 : 1;  // packed FP4 has at least two scales per step
    if (a_scale_id < 0 || a_scale_id > 3 || a_scale_id % ids != 0 || b_scale_id < 0 ||
        b_scale_id > 3 || b_scale_id % ids != 0)
      return "the scale id is 0 to 3; 0 or 2 for packed FP4";
    return nullptr;
  }
};

}  // namespace halftone::tile
