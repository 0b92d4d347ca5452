// Counter-based random numbers, and noise as a memoryless channel.
#include "native.h"

static const double UNIT = 1.0 / 9007199254740992.0; // 2**-53

KERNEL(fill_uniform) {
    ARRAY(double, out); WORD(key0); WORD(key1); WORD(start);
    for (int64_t i = 0; i < out_0; i++) out[i] = (double)(random_word(key0, key1, start + (uint64_t)i) >> 11) * UNIT;
    return 0;
}

KERNEL(fill_symmetric) {
    ARRAY(float, out); REAL(reach); WORD(key0); WORD(key1); WORD(start);
    for (int64_t i = 0; i < out_0; i++) {
        double uniform = (double)(random_word(key0, key1, start + (uint64_t)i) >> 11) * UNIT;
        out[i] = (float)(uniform * (2 * reach) - reach);
    }
    return 0;
}

KERNEL(fill_normal) {
    ARRAY(double, out); ARRAY(const double, edges); WORD(key0); WORD(key1); WORD(counter);
    for (int64_t i = 0; i < out_0; i++) {
        uint64_t bits;
        double x;
        for (;;) {
            bits = random_word(key0, key1, counter++);
            int64_t layer = (int64_t)(bits & 0xFF);
            x = (double)(bits >> 11) * UNIT * edges[layer];
            if (x < edges[layer + 1]) break;
            double u = 1.0 - (double)(random_word(key0, key1, counter++) >> 11) * UNIT;
            if (layer == 0) { // beyond the last edge: Marsaglia's tail method
                double v = 1.0 - (double)(random_word(key0, key1, counter++) >> 11) * UNIT;
                x = -log(u) / edges[1];
                if (-2.0 * log(v) > x * x) {
                    x += edges[1];
                    break;
                }
            } else {
                double low = exp(-0.5 * (edges[layer] * edges[layer]));
                double high = exp(-0.5 * (edges[layer + 1] * edges[layer + 1]));
                if (low + u * (high - low) < exp(-0.5 * x * x)) break;
            }
        }
        out[i] = bits & 0x100 ? -x : x;
    }
    return 0;
}

KERNEL(fill_alias_table) {
    ARRAY(const double, law); ARRAY(uint32_t, table);
    double scaled[256];
    int64_t small[256], large[256];
    for (int64_t level = 0; level < 256; level++) {
        const double *row = law + 256 * level;
        uint32_t *entries = table + 256 * level;
        double total = 0.0;
        for (int64_t j = 0; j < 256; j++) total += row[j];
        int64_t n_small = 0, n_large = 0;
        for (int64_t j = 0; j < 256; j++) {
            scaled[j] = row[j] * 256.0 / total;
            entries[j] = (uint32_t)((0xFFFFFF << 8) | j);
            if (scaled[j] < 1.0) small[n_small++] = j;
            else large[n_large++] = j;
        }
        while (n_small > 0 && n_large > 0) {
            int64_t s = small[--n_small], g = large[n_large - 1];
            double threshold = scaled[s] * 16777216.0 + 0.5;
            entries[s] = (uint32_t)(((int64_t)(threshold < 16777215.0 ? threshold : 16777215.0) << 8) | g);
            scaled[g] -= 1.0 - scaled[s];
            if (scaled[g] < 1.0) {
                n_large--;
                small[n_small++] = g;
            }
        }
    }
    return 0;
}

#define WORDS 2048

KERNEL(sample) {
    ARRAY(const uint8_t, levels); ARRAY(const uint32_t, table); ARRAY(uint8_t, out); WORD(key0); WORD(key1);
    WORD(start);
    // Made in blocks that stay in the cache, by a loop that vectorises. The halves are in this order where the lower byte
    // comes first, as on every machine of today.
    union {
        uint64_t words[WORDS];
        uint32_t halves[2 * WORDS];
    } random;
    for (int64_t base = 0; base < levels_0; base += 2 * WORDS) {
        int64_t count = least(2 * WORDS, levels_0 - base);
        uint64_t first = start + (uint64_t)(base >> 1);
        for (int64_t i = 0; i < (count + 1) >> 1; i++) random.words[i] = random_word(key0, key1, first + (uint64_t)i);
        for (int64_t i = 0; i < count; i++) {
            uint32_t bits = random.halves[i];
            uint32_t column = bits >> 24;
            uint32_t entry = table[((uint32_t)levels[base + i] << 8) | column];
            out[base + i] = (uint8_t)((bits & 0xFFFFFF) < (entry >> 8) ? column : entry & 0xFF);
        }
    }
    return 0;
}
