// Near-duplicates: exact nearest neighbours, structural similarity and aligned correlation.
#include "native.h"

// Number of squared byte differences whose sum fits into 32 bits.
#define STRIDE 16384

// |a - b|², for bytes in 32-bit integers: exact and vectorised.
INLINE double square_of_bytes(const uint8_t *restrict a, const uint8_t *restrict b, int64_t length) {
    double total = 0.0;
    for (int64_t start = 0; start < length; start += STRIDE) {
        int32_t part = 0;
        for (int64_t i = start; i < least(start + STRIDE, length); i++) {
            int32_t gap = (int32_t)a[i] - (int32_t)b[i];
            part += gap * gap;
        }
        total += part;
    }
    return total;
}

// For floats in float64 and in order: bit-identical on every processor.
INLINE double square_of_floats(const float *restrict a, const float *restrict b, int64_t length) {
    double total = 0.0;
    for (int64_t start = 0; start < length; start += STRIDE) {
        double part = 0.0;
        for (int64_t i = start; i < least(start + STRIDE, length); i++) {
            double gap = (double)a[i] - (double)b[i];
            part += gap * gap;
        }
        total += part;
    }
    return total;
}

// Insert into the sorted list of the best so far; indices ascend, so ties go behind.
INLINE void insert(double square, int64_t index, double *squares, int64_t *indices, int64_t place) {
    for (; place > 0 && squares[place - 1] > square; place--)
        squares[place] = squares[place - 1], indices[place] = indices[place - 1];
    squares[place] = square, indices[place] = index;
}

// A lower bound of the squared distance, from the projected rows and the norms of the remainders.
INLINE double lower_bound(float product, double query, double query_rest, double reference, double reference_rest) {
    double gap = query_rest - reference_rest;
    return query + reference - 2.0 * (double)product + gap * gap;
}

KERNEL(least_bounds) {
    ARRAY(const float, products); ARRAY(const double, query_square); ARRAY(const double, query_rest);
    ARRAY(const double, reference_square); ARRAY(const double, reference_rest); WHOLE(first);
    ARRAY(const int64_t, own); ARRAY(double, bounds); ARRAY(int64_t, indices);
    int64_t last = bounds_1 - 1;
    for (int64_t i = 0; i < products_0; i++) {
        double *best = bounds + i * bounds_1;
        for (int64_t j = 0; j < products_1; j++) {
            double bound = lower_bound(
                products[i * products_1 + j], query_square[i], query_rest[i], reference_square[j], reference_rest[j]
            );
            if (bound < best[last] && first + j != own[i]) insert(bound, first + j, best, indices + i * bounds_1, last);
        }
    }
    return 0;
}

#define REFINE(name, type, square_of)                                                                                      \
    KERNEL(name) {                                                                                                         \
        ARRAY(const float, products); ARRAY(const double, query_square); ARRAY(const double, query_rest);                  \
        ARRAY(const double, reference_square); ARRAY(const double, reference_rest); WHOLE(first);                          \
        ARRAY(const int64_t, own); ARRAY(const type, queries); ARRAY(const type, references); REAL(slack);                 \
        ARRAY(const double, limits); ARRAY(double, squares); ARRAY(int64_t, indices);                                      \
        int64_t last = squares_1 - 1;                                                                                      \
        for (int64_t i = 0; i < products_0; i++) {                                                                         \
            double *best = squares + i * squares_1, length = query_square[i] + query_rest[i] * query_rest[i];              \
            for (int64_t j = 0; j < products_1; j++) {                                                                     \
                double bound = lower_bound(                                                                                \
                    products[i * products_1 + j], query_square[i], query_rest[i], reference_square[j], reference_rest[j]   \
                );                                                                                                         \
                bound -= slack * (length + reference_square[j] + reference_rest[j] * reference_rest[j]);                   \
                if (!(bound <= limits[i] && bound < best[last] && first + j != own[i])) continue;                          \
                double square = square_of(queries + i * queries_1, references + j * references_1, queries_1);              \
                if (square < best[last]) insert(square, first + j, best, indices + i * squares_1, last);                   \
            }                                                                                                              \
        }                                                                                                                  \
        return 0;                                                                                                          \
    }

REFINE(refine_bytes, uint8_t, square_of_bytes)
REFINE(refine_floats, float, square_of_floats)

#define PAIR_SQUARES(name, type, square_of)                                                                                \
    KERNEL(name) {                                                                                                         \
        ARRAY(const type, a); ARRAY(const type, b); ARRAY(const int64_t, first); ARRAY(const int64_t, second);             \
        ARRAY(double, out);                                                                                                \
        for (int64_t i = 0; i < first_0; i++) out[i] = square_of(a + first[i] * a_1, b + second[i] * b_1, a_1);            \
        return 0;                                                                                                          \
    }

PAIR_SQUARES(pair_squares_of_bytes, uint8_t, square_of_bytes)
PAIR_SQUARES(pair_squares_of_floats, float, square_of_floats)

// Windows' means by a separable filter: columns first, then rows; the innermost loops run over contiguous memory.
INLINE void window_means(
    const float *restrict values, int64_t width, const float *restrict taps, int64_t n_taps, float *restrict row,
    float *restrict out, int64_t out_height, int64_t out_width
) {
    memset(out, 0, sizeof(float) * (size_t)(out_height * out_width));
    for (int64_t y = 0; y < out_height; y++) {
        memset(row, 0, sizeof(float) * (size_t)width);
        for (int64_t k = 0; k < n_taps; k++)
            for (int64_t x = 0; x < width; x++) row[x] += taps[k] * values[(y + k) * width + x];
        for (int64_t k = 0; k < n_taps; k++)
            for (int64_t x = 0; x < out_width; x++) out[y * out_width + x] += taps[k] * row[x + k];
    }
}

#define C1 (0.01 * 255 * (0.01 * 255))
#define C2 (0.03 * 255 * (0.03 * 255))
// Subtracted from all values, so that variances are not small differences of large numbers in float32.
#define MIDDLE 128.0

INLINE double mean_similarity(const float *restrict local, int64_t size) {
    double total = 0.0;
    for (int64_t i = 0; i < size; i++) {
        double a = local[i], b = local[size + i];
        double variances = (double)(local[2 * size + i] + local[3 * size + i]) - a * a - b * b;
        double covariance = (double)local[4 * size + i] - a * b;
        a += MIDDLE, b += MIDDLE;
        double top = (2 * a * b + C1) * (2 * covariance + C2);
        total += top / ((a * a + b * b + C1) * (variances + C2));
    }
    return total / (double)size;
}

// Images are (N, height, width * channels).
KERNEL(structural_similarity) {
    ARRAY(const uint8_t, first); ARRAY(const uint8_t, second); WHOLE(channels); ARRAY(const float, taps);
    ARRAY(double, values);
    int64_t height = first_1, width = first_2 / channels, size = height * width;
    int64_t out_height = height - taps_0 + 1, out_width = width - taps_0 + 1, out_size = out_height * out_width;
    float *restrict moments = malloc(sizeof(float) * (size_t)(5 * size + 5 * out_size + width));
    if (!moments) return 1;
    float *restrict local = moments + 5 * size, *restrict row = local + 5 * out_size;
    for (int64_t i = 0; i < first_0; i++) {
        const uint8_t *a = first + i * size * channels, *b = second + i * size * channels;
        double total = 0.0;
        for (int64_t c = 0; c < channels; c++) {
            for (int64_t p = 0; p < size; p++) { // a, b, a², b² and ab, relative to mid-grey
                float u = (float)a[p * channels + c] - (float)MIDDLE, v = (float)b[p * channels + c] - (float)MIDDLE;
                moments[p] = u, moments[size + p] = v, moments[2 * size + p] = u * u;
                moments[3 * size + p] = v * v, moments[4 * size + p] = u * v;
            }
            for (int64_t m = 0; m < 5; m++)
                window_means(moments + m * size, width, taps, taps_0, row, local + m * out_size, out_height, out_width);
            total += mean_similarity(local, out_size);
        }
        values[i] = total / (double)channels;
    }
    free(moments);
    return 0;
}

// out = a b, for matrices too small for a multithreaded library.
INLINE void multiply(
    const float *restrict a, const float *restrict b, float *restrict out, int64_t height, int64_t inner, int64_t width
) {
    for (int64_t y = 0; y < height; y++) {
        float *restrict row = out + y * width;
        memset(row, 0, sizeof(float) * (size_t)width);
        for (int64_t k = 0; k < inner; k++)
            for (int64_t x = 0; x < width; x++) row[x] += a[y * inner + k] * b[k * width + x];
    }
}

// The detail: light minus its blur.
INLINE void sharpen(
    const float *restrict light, const float *restrict blur, const float *restrict blur_across, float *restrict half,
    float *restrict out, int64_t side
) {
    multiply(blur, light, half, side, side, side);
    multiply(half, blur_across, out, side, side, side);
    for (int64_t i = 0; i < side * side; i++) out[i] = light[i] - out[i];
}

INLINE void centre(float *restrict template, int64_t size) {
    double total = 0.0;
    for (int64_t i = 0; i < size; i++) total += (double)template[i];
    float mean = (float)(total / (double)size);
    for (int64_t i = 0; i < size; i++) template[i] -= mean;
}

// The greatest normalised correlation over templates and places. A window's own mean cancels in the products, since
// templates have mean zero, but not in its norm. `work` holds 3 + count rows of places * places.
INLINE double best_correlation(
    const float *restrict templates, int64_t count, int64_t middle, const float *restrict detail, int64_t side,
    double noise, float *restrict work, double *restrict lengths
) {
    int64_t places = side - middle + 1, n = places * places;
    float *restrict under = work, *restrict sums = work + n, *restrict squares = work + 2 * n;
    float *restrict products = work + 3 * n;
    memset(work, 0, sizeof(float) * (size_t)((3 + count) * n));
    memset(lengths, 0, sizeof(double) * (size_t)count);
    for (int64_t y = 0; y < middle; y++) {
        for (int64_t x = 0; x < middle; x++) {
            for (int64_t down = 0; down < places; down++) // the pixels under this template pixel, at every position
                memcpy(under + down * places, detail + (y + down) * side + x, sizeof(float) * (size_t)places);
            for (int64_t p = 0; p < n; p++) sums[p] += under[p], squares[p] += under[p] * under[p];
            for (int64_t t = 0; t < count; t++) {
                float weight = templates[(t * middle + y) * middle + x], *restrict product = products + t * n;
                lengths[t] += (double)(weight * weight);
                for (int64_t p = 0; p < n; p++) product[p] += weight * under[p];
            }
        }
    }
    double size = (double)(middle * middle), floor = size * noise * noise, best = -1.0;
    for (int64_t p = 0; p < n; p++) {
        double variance = (double)squares[p] - (double)(sums[p] * sums[p]) / size;
        double length = (variance > 0.0 ? variance : 0.0) + floor;
        for (int64_t t = 0; t < count; t++) {
            double value = (double)products[t * n + p] / sqrt(length * (lengths[t] + floor));
            best = value > best ? value : best;
        }
    }
    return best;
}

KERNEL(aligned_correlations) {
    ARRAY(const float, first); ARRAY(const float, second); ARRAY(const bool, fresh); ARRAY(const float, blur);
    ARRAY(const float, blur_across); ARRAY(const float, tall); ARRAY(const float, wide); REAL(noise);
    ARRAY(double, values);
    int64_t count = tall_0, middle = tall_1, side = tall_2, size = side * side;
    int64_t places = (side - middle + 1) * (side - middle + 1), template = middle * middle;
    double *lengths = malloc(sizeof(double) * (size_t)count);
    float *detail = malloc(sizeof(float) * (size_t)(2 * size + middle * side + count * template + (3 + count) * places));
    if (!lengths || !detail) return free(lengths), free(detail), 1;
    float *half = detail + size, *part = half + size, *templates = part + middle * side;
    float *work = templates + count * template;
    for (int64_t i = 0; i < first_0; i++) {
        if (fresh[i]) {
            sharpen(first + i * size, blur, blur_across, half, detail, side);
            for (int64_t t = 0; t < count; t++) {
                multiply(tall + t * middle * side, detail, part, middle, side, side);
                multiply(part, wide + t * side * middle, templates + t * template, middle, side, middle);
                centre(templates + t * template, template);
            }
        }
        sharpen(second + i * size, blur, blur_across, half, detail, side);
        values[i] = best_correlation(templates, count, middle, detail, side, noise, work, lengths);
    }
    return free(lengths), free(detail), 0;
}
