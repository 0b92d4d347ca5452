// Resampling: zooms, affine and elastic warps, box pixelation.
#include "native.h"

// Reflection about the edge pixel's centre (gfedcb|abcdefgh|gfedcba).
INLINE int64_t mirror101(int64_t i, int64_t n) {
    if (n == 1) return 0;
    int64_t period = 2 * (n - 1);
    i = modulo(i, period);
    return i >= n ? period - i : i;
}

// Reflection about the edge of the image (dcba|abcd|dcba).
INLINE int64_t mirror(int64_t i, int64_t n) {
    i = modulo(i, 2 * n);
    return i >= n ? 2 * n - 1 - i : i;
}

KERNEL(zoom_sum) {
    ARRAY(const float, source); ARRAY(const int32_t, y_index); ARRAY(const float, y_part);
    ARRAY(const int32_t, run_count); ARRAY(const int32_t, run_start); ARRAY(const int32_t, run_shift);
    ARRAY(const float, x_part); WHOLE(channels); ARRAY(uint8_t, out);
    int64_t height = out_0, n = out_1, zooms = y_index_0;
    float *restrict total = malloc(sizeof(float) * (size_t)(2 * n + channels));
    if (!total) return 1;
    float *restrict line = total + n;
    float count = (float)(zooms + 1);
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
                int64_t first = start[0], length = start[1] - start[0];
                const float *here = line + first + run_shift[z * run_shift_1 + r], *following = here + channels;
                const float *part = x_part + z * x_part_1 + first;
                float *restrict sums = total + first;
                for (int64_t i = 0; i < length; i++) sums[i] += here[i] + part[i] * (following[i] - here[i]);
            }
        }
        const float *row = source + y * n;
        for (int64_t i = 0; i < n; i++)
            out[y * n + i] = (uint8_t)(int32_t)(clipped_single((row[i] + total[i]) / count) * 255.0f);
    }
    free(total);
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
            int64_t a, b, c, d;
            if (ix >= 0 && iy >= 0 && ix < width - 1 && iy < height - 1) {
                a = iy * stride + ix * 3;
                b = a + 3, c = a + stride, d = c + 3;
            } else {
                int64_t jx = mirror101(ix + 1, width) * 3, jy = mirror101(iy + 1, height) * stride;
                ix = mirror101(ix, width) * 3, iy = mirror101(iy, height) * stride;
                a = iy + ix, b = iy + jx, c = jy + ix, d = jy + jx;
            }
            float w00 = (1.0f - fy) * (1.0f - fx), w01 = (1.0f - fy) * fx, w10 = fy * (1.0f - fx), w11 = fy * fx;
            for (int64_t k = 0; k < 3; k++) {
                float value = source[a + k] * w00 + source[b + k] * w01;
                row[3 * x + k] = (value + source[c + k] * w10) + source[d + k] * w11;
            }
        }
    }
    free(step_x);
    return 0;
}

KERNEL(displace) {
    ARRAY(const float, source); ARRAY(const float, dx); ARRAY(const float, dy); ARRAY(uint8_t, out);
    int64_t height = dx_0, width = dx_1, stride = 3 * width;
    double *restrict part_x = malloc((2 * sizeof(double) + 3 * sizeof(int32_t)) * (size_t)width);
    if (!part_x) return 1;
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
            inside[x] = (ix >= 0) & (iy >= 0) & (ix < (int32_t)width - 1) & (iy < (int32_t)height - 1);
        }
        uint8_t *restrict row = out + y * stride;
        for (int64_t x = 0; x < width; x++) {
            double fx = part_x[x], fy = part_y[x];
            int64_t ix = whole_x[x], iy = whole_y[x], a, b, c, d;
            if (inside[x]) {
                a = iy * stride + ix * 3;
                b = a + 3, c = a + stride, d = c + 3;
            } else {
                int64_t x0 = mirror(ix, width) * 3, x1 = mirror(ix + 1, width) * 3;
                int64_t y0 = mirror(iy, height) * stride, y1 = mirror(iy + 1, height) * stride;
                a = y0 + x0, b = y0 + x1, c = y1 + x0, d = y1 + x1;
            }
            double w00 = (1.0 - fy) * (1.0 - fx), w01 = (1.0 - fy) * fx, w10 = fy * (1.0 - fx), w11 = fy * fx;
            for (int64_t k = 0; k < 3; k++) {
                double value = source[a + k] * w00 + source[b + k] * w01;
                // Rounded to float32 before truncation, as published: in white regions the last bit decides.
                float single = (float)((value + source[c + k] * w10) + source[d + k] * w11);
                row[3 * x + k] = (uint8_t)(int32_t)(clipped_single(single) * 255.0f);
            }
        }
    }
    free(part_x);
    return 0;
}

KERNEL(smooth_mirrored) {
    ARRAY(const float, noise); ARRAY(const float, weights); ARRAY(float, out);
    int64_t height = noise_0, width = noise_1, radius = weights_0 - 1;
    float *restrict padded = malloc(sizeof(float) * (size_t)(width + 2 * radius));
    if (!padded) return 1;
    float *restrict centre = padded + radius;
    for (int64_t y = 0; y < height; y++) {
        const float *row = noise + y * width;
        for (int64_t i = 0; i < width; i++) centre[i] = weights[0] * row[i];
        for (int64_t j = 1; j <= radius; j++) {
            const float *above = noise + mirror(y - j, height) * width, *below = noise + mirror(y + j, height) * width;
            float w = weights[j];
            for (int64_t i = 0; i < width; i++) centre[i] += w * (above[i] + below[i]);
        }
        for (int64_t j = 1; j <= radius; j++) {
            centre[-j] = centre[mirror(-j, width)];
            centre[width - 1 + j] = centre[mirror(width - 1 + j, width)];
        }
        float *restrict result = out + y * width;
        for (int64_t i = 0; i < width; i++) result[i] = weights[0] * centre[i];
        for (int64_t j = 1; j <= radius; j++) {
            float w = weights[j];
            for (int64_t i = 0; i < width; i++) result[i] += w * (centre[i - j] + centre[i + j]);
        }
    }
    free(padded);
    return 0;
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

KERNEL(box_pixelate) {
    ARRAY(const uint8_t, image); ARRAY(const uint32_t, x_start); ARRAY(const int32_t, x_weight);
    ARRAY(const uint32_t, y_start); ARRAY(const int32_t, y_weight); ARRAY(const uint32_t, x_back);
    ARRAY(const uint32_t, y_back); ARRAY(uint8_t, out);
    const int32_t half = 1 << 21;
    int64_t height = image_0, n = x_weight_0 * 3, taps_x = x_weight_1, taps_y = y_weight_1;
    uint8_t *restrict narrow = malloc((size_t)((height + 1) * n));
    int32_t *restrict total = malloc(sizeof(int32_t) * (size_t)n);
    if (!narrow || !total) return free(narrow), free(total), 1;
    for (int64_t y = 0; y < height; y++) {
        uint8_t *restrict line = narrow + y * n;
        for (int64_t x = 0; x < x_weight_0; x++) {
            int32_t red = half, green = half, blue = half;
            const uint8_t *pixel = image + y * image_1 + 3 * (int64_t)x_start[x];
            for (int64_t t = 0; t < taps_x; t++, pixel += 3) {
                int32_t w = x_weight[x * taps_x + t];
                red += w * pixel[0];
                green += w * pixel[1];
                blue += w * pixel[2];
            }
            line[3 * x] = (uint8_t)(red >> 22);
            line[3 * x + 1] = (uint8_t)(green >> 22);
            line[3 * x + 2] = (uint8_t)(blue >> 22);
        }
    }
    uint8_t *restrict levels = narrow + height * n;
    for (int64_t y = 0; y < height; y++) {
        uint8_t *row = out + y * out_1;
        int64_t box = y_back[y];
        if (y > 0 && box == y_back[y - 1]) {
            memcpy(row, row - out_1, (size_t)out_1);
            continue;
        }
        for (int64_t i = 0; i < n; i++) total[i] = half;
        for (int64_t t = 0; t < taps_y; t++) {
            const uint8_t *line = narrow + ((int64_t)y_start[box] + t) * n;
            int32_t w = y_weight[box * taps_y + t];
            for (int64_t i = 0; i < n; i++) total[i] += w * line[i];
        }
        for (int64_t i = 0; i < n; i++) levels[i] = (uint8_t)(total[i] >> 22);
        for (int64_t x = 0; x < x_back_0; x++) memcpy(row + 3 * x, levels + 3 * (int64_t)x_back[x], 3);
    }
    return free(narrow), free(total), 0;
}
