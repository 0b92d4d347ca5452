// Linear filters on interleaved rows: an image (H, W, C) is read as H rows of W * C values.
#include "native.h"

KERNEL(to_unit) {
    ARRAY(const uint8_t, image); ARRAY(double, out);
    double level[256];
    fill_levels(level);
    for (int64_t i = 0; i < image_0; i++) out[i] = level[image[i]];
    return 0;
}

// Row y of a separable symmetric filter with nearest-edge borders, vertical pass first. The additions run in SciPy's
// order (centre, then from the outermost pair inwards): in flat regions the last bit decides between two grey levels when
// the result is truncated.
INLINE void blur_row(
    const double *restrict source, int64_t height, int64_t n, int64_t y, const double *restrict weights, int64_t radius,
    int64_t channels, double *restrict padded, double *restrict out
) {
    int64_t pad = radius * channels;
    double *restrict centre = padded + pad;
    const double *row = source + y * n;
    for (int64_t i = 0; i < n; i++) centre[i] = row[i] * weights[0];
    for (int64_t j = radius; j > 0; j--) {
        const double *above = source + greatest(y - j, 0) * n, *below = source + least(y + j, height - 1) * n;
        double w = weights[j];
        for (int64_t i = 0; i < n; i++) centre[i] += (above[i] + below[i]) * w;
    }
    for (int64_t i = 0; i < pad; i++) {
        padded[i] = centre[i % channels];
        centre[n + i] = centre[n - channels + i % channels];
    }
    for (int64_t i = 0; i < n; i++) out[i] = centre[i] * weights[0];
    for (int64_t j = radius; j > 0; j--) {
        const double *left = centre - j * channels, *right = centre + j * channels;
        double w = weights[j];
        for (int64_t i = 0; i < n; i++) out[i] += (left[i] + right[i]) * w;
    }
}

KERNEL(gaussian_levels) {
    ARRAY(const double, source); ARRAY(const double, weights); WHOLE(channels); ARRAY(uint8_t, out);
    int64_t n = source_1, radius = weights_0 - 1;
    double *padded = malloc(sizeof(double) * (size_t)(2 * n + 2 * radius * channels));
    if (!padded) return 1;
    double *row = padded + n + 2 * radius * channels;
    for (int64_t y = 0; y < source_0; y++) {
        blur_row(source, source_0, n, y, weights, radius, channels, padded, row);
        for (int64_t i = 0; i < n; i++) out[y * n + i] = grey_level(row[i]);
    }
    free(padded);
    return 0;
}

KERNEL(gaussian_values) {
    ARRAY(const double, source); ARRAY(const double, weights); WHOLE(channels); ARRAY(double, out);
    int64_t n = source_1, radius = weights_0 - 1;
    double *padded = malloc(sizeof(double) * (size_t)(n + 2 * radius * channels));
    if (!padded) return 1;
    for (int64_t y = 0; y < source_0; y++)
        blur_row(source, source_0, n, y, weights, radius, channels, padded, out + y * n);
    free(padded);
    return 0;
}

KERNEL(column_sums) {
    ARRAY(const uint8_t, image); ARRAY(const int64_t, rows); ARRAY(const int64_t, columns); ARRAY(int32_t, out);
    int64_t width = image_1, channels = image_2, left = 0;
    while (columns[left] != 0 || columns[left + width - 1] != width - 1)
        left++; // the image itself starts here; elsewhere single columns are looked up
    memset(out, 0, sizeof(int32_t) * (size_t)out_1);
    for (int64_t y = 0; y < rows_0; y++) {
        const uint8_t *line = image + rows[y] * width * channels;
        const int32_t *above = out + y * out_1;
        int32_t *restrict below = out + (y + 1) * out_1;
        for (int64_t x = 0; x < columns_0; x++) {
            if (x == left) {
                const int32_t *inner_above = above + left * channels;
                int32_t *restrict inner = below + left * channels;
                for (int64_t i = 0; i < width * channels; i++) inner[i] = inner_above[i] + line[i];
                x += width - 1;
            } else {
                for (int64_t c = 0; c < channels; c++)
                    below[x * channels + c] = above[x * channels + c] + line[columns[x] * channels + c];
            }
        }
    }
    return 0;
}

// A kernel that is symmetric in both axes, as a weighted sum of column boxes. For each half height h, the sums over
// |dy| <= h come from the running sums and enter with a weight at the columns x - dx and x + dx.
#define COLUMN_BOXES(name, type)                                                                                           \
    KERNEL(name) {                                                                                                         \
        ARRAY(const int32_t, sums); ARRAY(const int32_t, halves); ARRAY(const int32_t, starts);                            \
        ARRAY(const int32_t, shifts); ARRAY(const type, weights); REAL(scale); WHOLE(reach); WHOLE(channels);              \
        ARRAY(uint8_t, out);                                                                                               \
        int64_t n = out_1;                                                                                                 \
        type *restrict total = malloc(sizeof(type) * (size_t)n);                                                           \
        int32_t *restrict box = malloc(sizeof(int32_t) * (size_t)sums_1);                                                  \
        if (!total || !box) return free(total), free(box), 1;                                                              \
        const int32_t *middle = box + reach * channels;                                                                    \
        for (int64_t y = 0; y < out_0; y++) {                                                                              \
            memset(total, 0, sizeof(type) * (size_t)n);                                                                    \
            for (int64_t k = 0; k < halves_0; k++) {                                                                       \
                const int32_t *high = sums + (y + reach + halves[k] + 1) * sums_1;                                         \
                const int32_t *low = sums + (y + reach - halves[k]) * sums_1;                                              \
                for (int64_t i = 0; i < sums_1; i++) box[i] = high[i] - low[i];                                            \
                for (int64_t t = starts[k]; t < starts[k + 1]; t += 2) {                                                   \
                    int64_t d0 = shifts[t] * channels, d1 = shifts[t + 1] * channels;                                      \
                    type w0 = weights[t], w1 = weights[t + 1];                                                             \
                    const int32_t *left0 = middle - d0, *right0 = middle + d0;                                             \
                    const int32_t *left1 = middle - d1, *right1 = middle + d1;                                             \
                    for (int64_t i = 0; i < n; i++)                                                                        \
                        total[i] += w0 * (type)(left0[i] + right0[i]) + w1 * (type)(left1[i] + right1[i]);                 \
                }                                                                                                          \
            }                                                                                                              \
            for (int64_t i = 0; i < n; i++) {                                                                              \
                double value = (double)total[i] * scale;                                                                   \
                out[y * n + i] = (uint8_t)(int32_t)(value < 255.0 ? value : 255.0);                                        \
            }                                                                                                              \
        }                                                                                                                  \
        return free(total), free(box), 0;                                                                                  \
    }

COLUMN_BOXES(column_boxes, double)
COLUMN_BOXES(whole_column_boxes, int32_t)

KERNEL(extend) {
    ARRAY(const uint8_t, image); WHOLE(top); WHOLE(left); ARRAY(int32_t, out);
    int64_t channels = image_2, n = image_1 * channels, first = left * channels;
    for (int64_t y = 0; y < out_0; y++) {
        const uint8_t *line = image + least(greatest(y - top, 0), image_0 - 1) * n;
        int32_t *restrict row = out + y * out_1;
        for (int64_t i = 0; i < n; i++) row[first + i] = line[i];
        for (int64_t i = 0; i < first; i++) row[i] = line[i % channels];
        for (int64_t i = first + n; i < out_1; i++) row[i] = line[n - channels + i % channels];
    }
    return 0;
}

KERNEL(line_filter) {
    ARRAY(const int32_t, padded); ARRAY(const int64_t, row_offsets); ARRAY(const int64_t, column_offsets);
    ARRAY(const int32_t, weights); WHOLE(bias); ARRAY(uint8_t, out);
    int64_t n = out_1;
    int32_t *restrict total = malloc(sizeof(int32_t) * (size_t)n);
    if (!total) return 1;
    for (int64_t y = 0; y < out_0; y++) {
        for (int64_t i = 0; i < n; i++) total[i] = (int32_t)bias;
        for (int64_t t = 0; t < weights_0; t += 2) {
            const int32_t *line0 = padded + (y + row_offsets[t]) * padded_1 + column_offsets[t];
            const int32_t *line1 = padded + (y + row_offsets[t + 1]) * padded_1 + column_offsets[t + 1];
            int32_t w0 = weights[t], w1 = weights[t + 1];
            for (int64_t i = 0; i < n; i++) total[i] += w0 * line0[i] + w1 * line1[i];
        }
        for (int64_t i = 0; i < n; i++) out[y * n + i] = (uint8_t)(total[i] >> 23);
    }
    free(total);
    return 0;
}

KERNEL(pack) {
    ARRAY(const uint8_t, image); ARRAY(uint32_t, out);
    for (int64_t i = 0; i < out_0; i++)
        out[i] = image[3 * i] | (uint32_t)image[3 * i + 1] << 8 | (uint32_t)image[3 * i + 2] << 16;
    return 0;
}

KERNEL(unpack_to_unit) {
    ARRAY(const uint32_t, pixels); ARRAY(double, out);
    double level[256];
    fill_levels(level);
    for (int64_t i = 0; i < pixels_0; i++) {
        uint32_t pixel = pixels[i];
        out[3 * i] = level[pixel & 255];
        out[3 * i + 1] = level[(pixel >> 8) & 255];
        out[3 * i + 2] = level[(pixel >> 16) & 255];
    }
    return 0;
}

KERNEL(glass_shuffle) {
    ARRAY(uint32_t, pixels); ARRAY(const int64_t, offsets); WHOLE(delta); WHOLE(swap);
    int64_t width = pixels_1;
    for (int64_t y = pixels_0 - delta; y > delta; y--) {
        for (int64_t x = width - delta; x > delta; x--) {
            uint32_t *here = pixels + y * width + x, *there = here + offsets[1] * width + offsets[0];
            offsets += 2;
            uint32_t pixel = *here;
            *here = *there;
            if (swap) *there = pixel;
        }
    }
    return 0;
}

KERNEL(glass_shuffle_keyed) {
    ARRAY(uint32_t, pixels); WHOLE(delta); WHOLE(swap); WORD(key0); WORD(key1); WORD(counter);
    int64_t width = pixels_1;
    uint64_t span = (uint64_t)(2 * delta);
    int32_t *jump = malloc(sizeof(int32_t) * (size_t)(width + 1));
    if (!jump) return 1;
    for (int64_t y = pixels_0 - delta; y > delta; y--) {
        for (int64_t i = 0; i < width - 2 * delta; i += 2) {
            uint64_t bits = random_word(key0, key1, counter++);
            for (int64_t j = 0; j < 2; j++) {
                int32_t dx = (int32_t)(((bits & 0xFFFF) * span) >> 16) - (int32_t)delta;
                int32_t dy = (int32_t)((((bits >> 16) & 0xFFFF) * span) >> 16) - (int32_t)delta;
                jump[i + j] = dy * (int32_t)width + dx;
                bits >>= 32;
            }
        }
        uint32_t *here = pixels + y * width + width - delta;
        for (int64_t i = 0; i < width - 2 * delta; i++, here--) {
            uint32_t *there = here + jump[i], pixel = *here;
            *here = *there;
            if (swap) *there = pixel;
        }
    }
    free(jump);
    return 0;
}
