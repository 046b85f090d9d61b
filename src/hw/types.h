// The element types of instructions, and their names inside an instruction: the "C" constraint of
// inline assembly takes such a name as an operand, so one function serves every type.
#pragma once
#include <cstdint>

#include "hw/target.h"

namespace halftone::hw {

enum class Type : uint8_t {
  u8,
  s8,
  u4,
  s4,
  u16,
  s16,
  u32,
  s32,
  u64,
  s64,
  b32,
  b64,
  f16,
  bf16,
  tf32,
  f32,
  f64,
  f16x2,
  bf16x2,
  e4m3,
  e5m2,
  e2m1,
  e2m3,
  e3m2,
  ue8m0,
  ue4m3,
};

template <Type>
struct TypeName;

#define HT_TYPE_NAME(type)                \
  template <>                             \
  struct TypeName<Type::type> {           \
    static constexpr char text[] = #type; \
  };
HT_TYPE_NAME(u8)
HT_TYPE_NAME(s8)
HT_TYPE_NAME(u4)
HT_TYPE_NAME(s4)
HT_TYPE_NAME(u16)
HT_TYPE_NAME(s16)
HT_TYPE_NAME(u32)
HT_TYPE_NAME(s32)
HT_TYPE_NAME(u64)
HT_TYPE_NAME(s64)
HT_TYPE_NAME(b32)
HT_TYPE_NAME(b64)
HT_TYPE_NAME(f16)
HT_TYPE_NAME(bf16)
HT_TYPE_NAME(tf32)
HT_TYPE_NAME(f32)
HT_TYPE_NAME(f64)
HT_TYPE_NAME(f16x2)
HT_TYPE_NAME(bf16x2)
HT_TYPE_NAME(e4m3)
HT_TYPE_NAME(e5m2)
HT_TYPE_NAME(e2m1)
HT_TYPE_NAME(e2m3)
HT_TYPE_NAME(e3m2)
HT_TYPE_NAME(ue8m0)
HT_TYPE_NAME(ue4m3)
#undef HT_TYPE_NAME

// The type an instruction uses for a C++ type.
template <class T>
struct TypeOf;
template <>
struct TypeOf<uint32_t> {
  static constexpr Type value = Type::u32;
};
template <>
struct TypeOf<int32_t> {
  static constexpr Type value = Type::s32;
};
template <>
struct TypeOf<uint64_t> {
  static constexpr Type value = Type::u64;
};
template <>
struct TypeOf<int64_t> {
  static constexpr Type value = Type::s64;
};
template <>
struct TypeOf<float> {
  static constexpr Type value = Type::f32;
};
template <>
struct TypeOf<double> {
  static constexpr Type value = Type::f64;
};

constexpr uint32_t bits_of(Type type) {
  switch (type) {
    case Type::u4:
    case Type::s4:
    case Type::e2m1:
      return 4;
    case Type::e2m3:
    case Type::e3m2:
      return 6;
    case Type::u8:
    case Type::s8:
    case Type::e4m3:
    case Type::e5m2:
    case Type::ue8m0:
    case Type::ue4m3:
      return 8;
    case Type::u16:
    case Type::s16:
    case Type::f16:
    case Type::bf16:
      return 16;
    case Type::u64:
    case Type::s64:
    case Type::b64:
    case Type::f64:
      return 64;
    default:
      return 32;
  }
}

// Threads an ordered access synchronises with, and the order it keeps.
enum class Scope : uint8_t { cta, cluster, gpu, sys };
enum class Order : uint8_t { weak, volatile_access, relaxed, acquire, release, acq_rel };

template <Scope>
struct ScopeName;
template <>
struct ScopeName<Scope::cta> {
  static constexpr char text[] = "cta";
};
template <>
struct ScopeName<Scope::cluster> {
  static constexpr char text[] = "cluster";
};
template <>
struct ScopeName<Scope::gpu> {
  static constexpr char text[] = "gpu";
};
template <>
struct ScopeName<Scope::sys> {
  static constexpr char text[] = "sys";
};

// ".order.scope" of an access; weak accesses have neither.
template <Order, Scope>
struct OrderName;
#define HT_ORDER_NAME(order, scope)                       \
  template <>                                             \
  struct OrderName<Order::order, Scope::scope> {          \
    static constexpr char text[] = "." #order "." #scope; \
  };
#define HT_ORDER_NAMES(order) \
  HT_ORDER_NAME(order, cta)   \
  HT_ORDER_NAME(order, cluster) HT_ORDER_NAME(order, gpu) HT_ORDER_NAME(order, sys)
HT_ORDER_NAMES(relaxed)
HT_ORDER_NAMES(acquire)
HT_ORDER_NAMES(release)
HT_ORDER_NAMES(acq_rel)
#undef HT_ORDER_NAMES
#undef HT_ORDER_NAME
template <Scope kScope>
struct OrderName<Order::weak, kScope> {
  static constexpr char text[] = "";
};
template <Scope kScope>
struct OrderName<Order::volatile_access, kScope> {
  static constexpr char text[] = ".volatile";
};

}  // namespace halftone::hw
