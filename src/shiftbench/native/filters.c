// Linear filters on interleaved rows: an image (H, W, C) is read as H rows of W * C values.
#include "native.h"

KERNEL(to_unit) {
    ARRAY(const uint8_t, image); ARRAY(float, out);
    for (int64_t i = 0; i < image_0; i++) out[i] = (float)image[i] / 255.0f;
    return 0;
}

// out = centre * weights[0] + (first[1] + second[1]) * weights[1] + ..., added in this order, for n values: one axis of a
// separable symmetric filter. The sums of a few values stay in registers.
#define WEIGHTED_PAIRS(name, type, Vector)                                                                                 \
    INLINE void name(                                                                                                      \
        int64_t n, int64_t pairs, const type *restrict weights, const type *const *restrict first,                         \
        const type *const *restrict second, type *restrict out                                                             \
    ) {                                                                                                                    \
        const int64_t lanes = sizeof(Vector) / sizeof(type);                                                               \
        int64_t i = 0;                                                                                                     \
        for (; i + 2 * lanes <= n; i += 2 * lanes) {                                                                       \
            Vector a = VECTOR(const Vector, first[0] + i) * weights[0];                                                    \
            Vector b = VECTOR(const Vector, first[0] + i + lanes) * weights[0];                                            \
            for (int64_t j = 1; j <= pairs; j++) {                                                                         \
                const type *one = first[j] + i, *two = second[j] + i;                                                      \
                a += (VECTOR(const Vector, one) + VECTOR(const Vector, two)) * weights[j];                                 \
                b += (VECTOR(const Vector, one + lanes) + VECTOR(const Vector, two + lanes)) * weights[j];                 \
            }                                                                                                              \
            VECTOR(Vector, out + i) = a, VECTOR(Vector, out + i + lanes) = b;                                              \
        }                                                                                                                  \
        for (; i < n; i++) {                                                                                               \
            type a = first[0][i] * weights[0];                                                                             \
            for (int64_t j = 1; j <= pairs; j++) a += (first[j][i] + second[j][i]) * weights[j];                           \
            out[i] = a;                                                                                                    \
        }                                                                                                                  \
    }

WEIGHTED_PAIRS(weighted_pairs, double, Doubles)
WEIGHTED_PAIRS(weighted_single_pairs, float, Singles)

// A separable symmetric filter with nearest-edge borders, vertical pass first, of grey levels (on [0, 1], to truncated grey
// levels) or of values. The additions run in SciPy's order (centre, then from the outermost pair inwards): in flat regions
// the last bit decides between two grey levels when the result is truncated.
INLINE int blur(
    const uint8_t *levels, const double *values, int64_t height, int64_t n, const double *weights, int64_t radius,
    int64_t channels, uint8_t *levels_out, double *values_out
) {
    int64_t pad = radius * channels, span = 2 * radius + 1, kept = levels ? span : 0;
    double level[256];
    double *memory = malloc(sizeof(double) * (size_t)((kept + 2) * n + 2 * pad + radius + 1));
    const double **first = malloc(sizeof(double *) * (size_t)(2 * (radius + 1)));
    if (!memory || !first) return free(memory), free(first), 1;
    double *recent = memory, *padded = recent + kept * n, *centre = padded + pad; // the rows around y on [0, 1]
    double *row = padded + n + 2 * pad, *ordered = row + n;
    const double **second = first + radius + 1;
    ordered[0] = weights[0];
    for (int64_t j = 1; j <= radius; j++) ordered[j] = weights[radius + 1 - j];
    fill_levels(level);
    for (int64_t y = 0, read = 0; y < height; y++) {
        for (; levels && read <= least(y + radius, height - 1); read++)
            for (int64_t i = 0; i < n; i++) recent[read % span * n + i] = level[levels[read * n + i]];
        for (int64_t j = 0; j <= radius; j++) {
            int64_t distance = j ? radius + 1 - j : 0, above = greatest(y - distance, 0);
            int64_t below = least(y + distance, height - 1);
            first[j] = levels ? recent + above % span * n : values + above * n;
            second[j] = levels ? recent + below % span * n : values + below * n;
        }
        weighted_pairs(n, radius, ordered, first, second, centre);
        for (int64_t i = 0; i < pad; i++) {
            padded[i] = centre[i % channels];
            centre[n + i] = centre[n - channels + i % channels];
        }
        for (int64_t j = 0; j <= radius; j++) {
            int64_t distance = (j ? radius + 1 - j : 0) * channels;
            first[j] = centre - distance, second[j] = centre + distance;
        }
        double *result = values_out ? values_out + y * n : row;
        weighted_pairs(n, radius, ordered, first, second, result);
        for (int64_t i = 0; levels_out && i < n; i++) levels_out[y * n + i] = grey_level(result[i]);
    }
    return free(memory), free(first), 0;
}

KERNEL(gaussian_levels) {
    ARRAY(const uint8_t, image); ARRAY(const double, weights); WHOLE(channels); ARRAY(uint8_t, out);
    return blur(image, NULL, image_0, image_1, weights, weights_0 - 1, channels, out, NULL);
}

KERNEL(gaussian_values) {
    ARRAY(const double, source); ARRAY(const double, weights); WHOLE(channels); ARRAY(double, out);
    return blur(NULL, source, source_0, source_1, weights, weights_0 - 1, channels, NULL, out);
}

KERNEL(smooth_mirrored) {
    ARRAY(const float, noise); ARRAY(const float, weights); ARRAY(float, out);
    int64_t height = noise_0, width = noise_1, radius = weights_0 - 1;
    float *padded = malloc(sizeof(float) * (size_t)(width + 2 * radius));
    const float **first = malloc(sizeof(float *) * (size_t)(2 * (radius + 1)));
    if (!padded || !first) return free(padded), free(first), 1;
    float *centre = padded + radius;
    const float **second = first + radius + 1;
    for (int64_t y = 0; y < height; y++) {
        for (int64_t j = 0; j <= radius; j++) {
            first[j] = noise + mirror(y - j, height) * width;
            second[j] = noise + mirror(y + j, height) * width;
        }
        weighted_single_pairs(width, radius, weights, first, second, centre);
        for (int64_t j = 1; j <= radius; j++) {
            centre[-j] = centre[mirror(-j, width)];
            centre[width - 1 + j] = centre[mirror(width - 1 + j, width)];
        }
        for (int64_t j = 0; j <= radius; j++) first[j] = centre - j, second[j] = centre + j;
        weighted_single_pairs(width, radius, weights, first, second, out + y * width);
    }
    return free(padded), free(first), 0;
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

KERNEL(line_filter) {
    ARRAY(const uint8_t, image); ARRAY(const int64_t, dy); ARRAY(const int64_t, dx); ARRAY(const int32_t, weights);
    WHOLE(bias); ARRAY(uint8_t, out);
    int64_t channels = image_2, n = image_1 * channels, top = 0, bottom = 0, left = 0, right = 0;
    for (int64_t t = 0; t < weights_0; t++) {
        top = greatest(top, -dy[t]), bottom = greatest(bottom, dy[t]);
        left = greatest(left, -dx[t] * channels), right = greatest(right, dx[t] * channels);
    }
    int64_t stride = left + n + right, rows = top + image_0 + bottom;
    int32_t *padded = malloc(sizeof(int32_t) * (size_t)(rows * stride)); // the image with its edges repeated
    int32_t *restrict total = malloc(sizeof(int32_t) * (size_t)n);
    if (!padded || !total) return free(padded), free(total), 1;
    for (int64_t y = 0; y < rows; y++) {
        const uint8_t *line = image + least(greatest(y - top, 0), image_0 - 1) * n;
        int32_t *restrict row = padded + y * stride;
        for (int64_t i = 0; i < n; i++) row[left + i] = line[i];
        for (int64_t x = 0; x < left; x += channels)
            for (int64_t c = 0; c < channels; c++) row[x + c] = line[c];
        for (int64_t x = 0; x < right; x += channels)
            for (int64_t c = 0; c < channels; c++) row[left + n + x + c] = line[n - channels + c];
    }
#define TAP(t) (weights[t] * padded[(y + top + dy[t]) * stride + left + dx[t] * channels + i])
    for (int64_t y = 0; y < image_0; y++) {
        int64_t t = 0;
        for (int64_t i = 0; i < n; i++) total[i] = (int32_t)bias;
        for (; t + 4 <= weights_0; t += 4)
            for (int64_t i = 0; i < n; i++) total[i] += (TAP(t) + TAP(t + 1)) + (TAP(t + 2) + TAP(t + 3));
        for (; t < weights_0; t++)
            for (int64_t i = 0; i < n; i++) total[i] += TAP(t);
        for (int64_t i = 0; i < n; i++) out[y * n + i] = (uint8_t)(total[i] >> 23);
    }
    return free(padded), free(total), 0;
}

KERNEL(pack) {
    ARRAY(const uint8_t, image); ARRAY(uint32_t, out);
    for (int64_t i = 0; i < out_0; i++)
        out[i] = image[3 * i] | (uint32_t)image[3 * i + 1] << 8 | (uint32_t)image[3 * i + 2] << 16;
    return 0;
}

KERNEL(unpack) {
    ARRAY(const uint32_t, pixels); ARRAY(uint8_t, out);
    for (int64_t i = 0; i < pixels_0; i++)
        out[3 * i] = (uint8_t)pixels[i], out[3 * i + 1] = (uint8_t)(pixels[i] >> 8), out[3 * i + 2] = (uint8_t)(pixels[i] >> 16);
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
