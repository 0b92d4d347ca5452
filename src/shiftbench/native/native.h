// What all kernels share.
//
// A kernel is called from Python through the declaration of the same name (see __init__.py). It begins by naming its
// arguments in order; the lengths of an array's axes are name_0, name_1 and name_2, 1 for axes that it does not have. It
// returns 0, or 1 when memory runs out.
//
// The same image must give the same pixels on every processor: the compiler neither re-orders nor fuses floating-point
// operations (see build.py), kernels start no threads, and no transcendental function is called where its last bit could
// reach a pixel.
#pragma once

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    void *data; // of an array
    int64_t shape[3];
    int64_t whole; // a whole number
    double real;
} Argument;

#define UNUSED __attribute__((unused))
#define ARRAY(type, name)                                                                                                  \
    type *restrict name = arguments->data;                                                                                 \
    const int64_t name##_0 UNUSED = arguments->shape[0], name##_1 UNUSED = arguments->shape[1];                            \
    const int64_t name##_2 UNUSED = arguments++->shape[2]
#define REAL(name) double name = arguments++->real
#define WHOLE(name) int64_t name = arguments++->whole
#define WORD(name) uint64_t name = (uint64_t)arguments++->whole

// GCC's interchange of loops makes filters seven times slower.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-loop-interchange", "no-loop-unroll-and-jam")
#endif

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif
#define KERNEL(name) EXPORTED int name(const Argument *arguments)
#define INLINE static inline __attribute__((always_inline))

// Vectors of 32 bytes, at any address. The compiler makes the best of them that a processor has; where a loop over an
// array would be made into vectors anyway, it is left to do so.
typedef double Doubles __attribute__((vector_size(32), aligned(8)));
typedef float Singles __attribute__((vector_size(32), aligned(4)));
typedef float Pixel __attribute__((vector_size(16), aligned(4))); // three channels and what follows them
typedef int32_t Words __attribute__((vector_size(16), aligned(4))); // as a Pixel, in whole numbers
#define VECTOR(type, address) (*(type *)(address))
#define CONVERTED __builtin_convertvector

INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
INLINE int64_t greatest(int64_t a, int64_t b) { return a > b ? a : b; }
// In two steps, of which vectors need one instruction each.
INLINE double clipped(double x) {
    x = x > 0.0 ? x : 0.0;
    return x < 1.0 ? x : 1.0;
}
INLINE float clipped_single(float x) {
    x = x > 0.0f ? x : 0.0f;
    return x < 1.0f ? x : 1.0f;
}

// The grey level of a value on [0, 1], truncated.
INLINE uint8_t grey_level(double x) { return (uint8_t)(int32_t)(clipped(x) * 255.0); }

// Always between 0 and n - 1, also for negative numbers.
INLINE int64_t modulo(int64_t i, int64_t n) {
    i %= n;
    return i < 0 ? i + n : i;
}

// Reflection about the edge of the image (dcba|abcd|dcba).
INLINE int64_t mirror(int64_t i, int64_t n) {
    i = modulo(i, 2 * n);
    return i >= n ? 2 * n - 1 - i : i;
}

// Grey levels on [0, 1].
INLINE void fill_levels(double level[256]) {
    for (int i = 0; i < 256; i++) level[i] = i / 255.0;
}

// The same words as shiftbench.shifts.seeds.random_word.
INLINE uint64_t random_word(uint64_t key0, uint64_t key1, uint64_t counter) {
    uint64_t z = key0 + counter * 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u + key1;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}
