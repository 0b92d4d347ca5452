// Resampling: zooms, affine and elastic warps, resizing, box pixelation.
#include "native.h"

// Reflection about the edge pixel's centre (gfedcb|abcdefgh|gfedcba).
INLINE int64_t mirror101(int64_t i, int64_t n) {
    if (n == 1) return 0;
    int64_t period = 2 * (n - 1);
    i = modulo(i, period);
    return i >= n ? period - i : i;
}

KERNEL(zoom_sum) {
    ARRAY(const uint8_t, image); ARRAY(const int32_t, y_index); ARRAY(const float, y_part);
    ARRAY(const int32_t, run_count); ARRAY(const int32_t, run_start); ARRAY(const int32_t, run_shift);
    ARRAY(const float, x_part); WHOLE(channels); ARRAY(uint8_t, out);
    // Runs are written in whole vectors, from left to right: what goes beyond the end of one is overwritten by the next.
    // Rows, those of x_part included, have as much to spare.
    const int64_t lanes = sizeof(Singles) / sizeof(float);
    int64_t height = out_0, n = out_1, zooms = y_index_0;
    float *source = calloc((size_t)(height * n + 3 * n + channels + 2 * lanes), sizeof(float));
    if (!source) return 1;
    float *restrict total = source + height * n, *restrict zoomed = total + n, *restrict line = zoomed + n + lanes;
    float count = (float)(zooms + 1);
    for (int64_t i = 0; i < height * n; i++) source[i] = (float)image[i] / 255.0f;
    for (int64_t y = 0; y < height; y++) {
        memset(total, 0, sizeof(float) * (size_t)n);
        for (int64_t z = 0; z < zooms; z++) {
            int64_t index = y_index[z * y_index_1 + y];
            const float *top = source + index * n, *bottom = source + least(index + 1, height - 1) * n;
            float f = y_part[z * y_part_1 + y];
            for (int64_t i = 0; i < n; i++) line[i] = top[i] + f * (bottom[i] - top[i]);
            for (int64_t i = 0; i < channels; i++) line[n + i] = line[n - channels + i];
            for (int64_t r = 0; r < run_count[z]; r++) {
                const int32_t *start = run_start + z * run_start_1 + r;
                const float *shifted = line + run_shift[z * run_shift_1 + r], *part = x_part + z * x_part_1;
                for (int64_t i = start[0]; i < start[1]; i += lanes) {
                    Singles here = VECTOR(const Singles, shifted + i);
                    Singles following = VECTOR(const Singles, shifted + i + channels);
                    VECTOR(Singles, zoomed + i) = here + VECTOR(const Singles, part + i) * (following - here);
                }
            }
            for (int64_t i = 0; i < n; i++) total[i] += zoomed[i];
        }
        const float *row = source + y * n;
        for (int64_t i = 0; i < n; i++)
            out[y * n + i] = (uint8_t)(int32_t)(clipped_single((row[i] + total[i]) / count) * 255.0f);
    }
    free(source);
    return 0;
}

KERNEL(affine_warp) {
    ARRAY(const float, source); ARRAY(const double, inverse); WHOLE(width); ARRAY(float, out);
    int64_t height = out_0, stride = out_1;
    int32_t *step_x = malloc(sizeof(int32_t) * (size_t)(2 * width));
    if (!step_x) return 1;
    int32_t *step_y = step_x + width;
    for (int64_t x = 0; x < width; x++) {
        step_x[x] = (int32_t)rint(inverse[0] * (double)x * 1024);
        step_y[x] = (int32_t)rint(inverse[3] * (double)x * 1024);
    }
    for (int64_t y = 0; y < height; y++) {
        int64_t x0 = (int32_t)rint((inverse[1] * (double)y + inverse[2]) * 1024) + 16;
        int64_t y0 = (int32_t)rint((inverse[4] * (double)y + inverse[5]) * 1024) + 16;
        float *restrict row = out + y * stride;
        for (int64_t x = 0; x < width; x++) {
            int64_t px = (x0 + step_x[x]) >> 5, py = (y0 + step_y[x]) >> 5, ix = px >> 5, iy = py >> 5;
            float fx = (float)(px & 31) * (1.0f / 32.0f), fy = (float)(py & 31) * (1.0f / 32.0f);
            float w00 = (1.0f - fy) * (1.0f - fx), w01 = (1.0f - fy) * fx, w10 = fy * (1.0f - fx), w11 = fy * fx;
            if (ix >= 0 && iy >= 0 && ix < width - 1 && iy < height - 1 && iy + ix < height + width - 4) {
                const float *at = source + iy * stride + ix * 3; // all four, and not the image's last pixel
                Pixel value = VECTOR(const Pixel, at) * w00 + VECTOR(const Pixel, at + 3) * w01;
                value = (value + VECTOR(const Pixel, at + stride) * w10) + VECTOR(const Pixel, at + stride + 3) * w11;
                memcpy(row + 3 * x, &value, 3 * sizeof(float));
                continue;
            }
            int64_t jx = mirror101(ix + 1, width) * 3, jy = mirror101(iy + 1, height) * stride;
            ix = mirror101(ix, width) * 3, iy = mirror101(iy, height) * stride;
            for (int64_t k = 0; k < 3; k++) {
                float value = source[iy + ix + k] * w00 + source[iy + jx + k] * w01;
                row[3 * x + k] = (value + source[jy + ix + k] * w10) + source[jy + jx + k] * w11;
            }
        }
    }
    free(step_x);
    return 0;
}

#define WIDE(address) CONVERTED(VECTOR(const Pixel, address), Doubles)

KERNEL(displace) {
    ARRAY(const float, source); ARRAY(const float, dx); ARRAY(const float, dy); ARRAY(uint8_t, out);
    int64_t height = dx_0, width = dx_1, stride = 3 * width;
    double *restrict part_x = malloc((2 * sizeof(double) + 3 * sizeof(int32_t)) * (size_t)width);
    float *restrict values = malloc(sizeof(float) * (size_t)stride);
    if (!part_x || !values) return free(part_x), free(values), 1;
    double *restrict part_y = part_x + width;
    int32_t *restrict whole_x = (int32_t *)(part_y + width), *restrict whole_y = whole_x + width;
    int32_t *restrict inside = whole_y + width;
    for (int64_t y = 0; y < height; y++) {
        const float *row_x = dx + y * width, *row_y = dy + y * width;
        for (int32_t x = 0; x < (int32_t)width; x++) { // positions of the whole row first, a loop that vectorises
            double px = (double)x + (double)row_x[x], py = (double)y + (double)row_y[x];
            double gx = floor(px), gy = floor(py);
            int32_t ix = (int32_t)gx, iy = (int32_t)gy;
            part_x[x] = px - gx, part_y[x] = py - gy;
            whole_x[x] = ix, whole_y[x] = iy;
            inside[x] = (ix >= 0) & (iy >= 0) & (ix < (int32_t)width - 1) & (iy < (int32_t)height - 1)
                        & (ix + iy < (int32_t)(width + height) - 4); // all four, and not the image's last pixel
        }
        for (int64_t x = 0; x < width; x++) {
            double fx = part_x[x], fy = part_y[x];
            int64_t ix = whole_x[x], iy = whole_y[x];
            double w00 = (1.0 - fy) * (1.0 - fx), w01 = (1.0 - fy) * fx, w10 = fy * (1.0 - fx), w11 = fy * fx;
            if (inside[x]) {
                const float *at = source + iy * stride + ix * 3;
                Doubles value = WIDE(at) * w00 + WIDE(at + 3) * w01;
                Pixel single = CONVERTED((value + WIDE(at + stride) * w10) + WIDE(at + stride + 3) * w11, Pixel);
                memcpy(values + 3 * x, &single, 3 * sizeof(float));
                continue;
            }
            int64_t x0 = mirror(ix, width) * 3, x1 = mirror(ix + 1, width) * 3;
            int64_t y0 = mirror(iy, height) * stride, y1 = mirror(iy + 1, height) * stride;
            for (int64_t k = 0; k < 3; k++) {
                double value = source[y0 + x0 + k] * w00 + source[y0 + x1 + k] * w01;
                values[3 * x + k] = (float)((value + source[y1 + x0 + k] * w10) + source[y1 + x1 + k] * w11);
            }
        }
        // Rounded to float32 before truncation, as published: in white regions the last bit decides.
        for (int64_t i = 0; i < stride; i++)
            out[y * stride + i] = (uint8_t)(int32_t)(clipped_single(values[i]) * 255.0f);
    }
    return free(part_x), free(values), 0;
}

KERNEL(cosine_field) {
    ARRAY(const double, amplitudes); ARRAY(const double, basis_y); ARRAY(const double, basis_x); ARRAY(float, out);
    int64_t modes_y = amplitudes_0, modes_x = amplitudes_1, height = out_0, width = out_1;
    double *restrict partial = calloc((size_t)((modes_y + 1) * width), sizeof(double));
    if (!partial) return 1;
    for (int64_t k = 0; k < modes_y; k++) {
        double *restrict line = partial + k * width;
        for (int64_t m = 0; m < modes_x; m++) {
            double a = amplitudes[k * modes_x + m];
            const double *wave = basis_x + m * width;
            for (int64_t i = 0; i < width; i++) line[i] += a * wave[i];
        }
    }
    double *restrict total = partial + modes_y * width;
    for (int64_t y = 0; y < height; y++) {
        memset(total, 0, sizeof(double) * (size_t)width);
        for (int64_t k = 0; k < modes_y; k++) {
            double a = basis_y[k * height + y];
            const double *line = partial + k * width;
            for (int64_t i = 0; i < width; i++) total[i] += a * line[i];
        }
        for (int64_t i = 0; i < width; i++) out[y * width + i] = (float)total[i];
    }
    free(partial);
    return 0;
}

// Resampling as Pillow computes it: across, then down, in 22-bit fixed point, each pass rounded to grey levels. A table of
// weights has one row per output pixel, zero where the filter ends early.
typedef struct {
    const uint32_t *start;
    const int32_t *weights;
    int64_t count, taps;
} Filter;

#define FILTER(name)                                                                                                       \
    ARRAY(const uint32_t, name##_start); ARRAY(const int32_t, name##_weights);                                             \
    const Filter name = {name##_start, name##_weights, name##_weights_0, name##_weights_1}
#define HALF (1 << 21)

typedef struct {
    const uint8_t *image;
    int64_t height, stride, n, room; // n values across, in rows with one more
    Filter across, down;
    int64_t done; // rows of the image that were filtered across, of which the last ones are kept
    int32_t *wide, *recent;
} Resampling;

static bool begin_resampling(Resampling *r) {
    r->n = 3 * r->across.count, r->room = r->stride + 3 * r->across.taps + 1, r->done = r->down.start[0];
    int64_t kept = r->down.taps + 1, scratch = greatest(2 * r->room, r->n); // rows are filtered across two at a time
    r->wide = calloc((size_t)(scratch + kept * (r->n + 1)), sizeof(int32_t));
    r->recent = r->wide + scratch;
    return r->wide;
}

INLINE int32_t *recent_row(const Resampling *r, int64_t y) { return r->recent + y % (r->down.taps + 1) * (r->n + 1); }

INLINE Words rounded(Words total) {
    total >>= 22;
    Words over = total > 255;
    return (total & ~(total >> 31) & ~over) | (over & 255);
}

static void resample_two_rows(Resampling *r) {
    int64_t following = least(r->done + 1, r->height - 1);
    const uint8_t *upper = r->image + r->done * r->stride, *lower = r->image + following * r->stride;
    int32_t *restrict wide = r->wide, *restrict wide_lower = wide + r->room; // what follows a row meets weights of zero
    for (int64_t i = 0; i < r->stride; i++) wide[i] = upper[i], wide_lower[i] = lower[i];
    int32_t *out = recent_row(r, r->done), *out_lower = recent_row(r, r->done + 1);
    const int32_t *restrict weight = r->across.weights;
    for (int64_t x = 0; x < r->across.count; x++) {
        Words total = (Words){0} + HALF, total_lower = total;
        const int32_t *pixel = wide + 3 * (int64_t)r->across.start[x];
        for (int64_t t = 0; t < r->across.taps; t++, pixel += 3, weight++) {
            total += VECTOR(const Words, pixel) * *weight;
            total_lower += VECTOR(const Words, pixel + r->room) * *weight;
        }
        VECTOR(Words, out + 3 * x) = rounded(total); // the fourth value is overwritten by the next pixel
        VECTOR(Words, out_lower + 3 * x) = rounded(total_lower);
    }
    r->done += 2;
}

// Row y of the result; rows are asked for in order.
static void resample_row(Resampling *r, int64_t y, uint8_t *restrict out) {
    int64_t top = r->down.start[y], taps = least(r->down.taps, r->height - top);
    while (r->done < top + taps) resample_two_rows(r);
    const int32_t *weight = r->down.weights + y * r->down.taps;
    int32_t *restrict total = r->wide;
    for (int64_t i = 0; i < r->n; i++) total[i] = HALF;
    for (int64_t t = 0; t < taps; t++) {
        const int32_t *row = recent_row(r, top + t);
        for (int64_t i = 0; i < r->n; i++) total[i] += row[i] * weight[t];
    }
    for (int64_t i = 0; i < r->n; i++) {
        int32_t level = total[i] >> 22;
        level = level > 0 ? level : 0;
        out[i] = (uint8_t)(level < 255 ? level : 255);
    }
}

KERNEL(resample) {
    ARRAY(const uint8_t, image); FILTER(across); FILTER(down); ARRAY(uint8_t, out);
    Resampling r = {.image = image, .height = image_0, .stride = image_1, .across = across, .down = down};
    if (!begin_resampling(&r)) return 1;
    for (int64_t y = 0; y < out_0; y++) resample_row(&r, y, out + y * out_1);
    free(r.wide);
    return 0;
}

KERNEL(box_pixelate) {
    ARRAY(const uint8_t, image); FILTER(across); FILTER(down); ARRAY(const uint32_t, x_back); ARRAY(const uint32_t, y_back);
    ARRAY(uint8_t, out);
    Resampling r = {.image = image, .height = image_0, .stride = image_1, .across = across, .down = down};
    uint8_t *line = malloc((size_t)(3 * across.count));
    if (!line || !begin_resampling(&r)) return free(line), 1;
    for (int64_t y = 0; y < out_0; y++) {
        uint8_t *row = out + y * out_1;
        if (y > 0 && y_back[y] == y_back[y - 1]) {
            memcpy(row, row - out_1, (size_t)out_1);
            continue;
        }
        resample_row(&r, y_back[y], line);
        for (int64_t x = 0; x < x_back_0; x++) memcpy(row + 3 * x, line + 3 * (int64_t)x_back[x], 3);
    }
    return free(line), free(r.wide), 0;
}
