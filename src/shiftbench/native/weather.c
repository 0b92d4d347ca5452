// Plasma fractal, fog, frost and snow.
#include "native.h"

KERNEL(plasma) {
    REAL(decay); ARRAY(const double, uniforms); ARRAY(double, field);
    int64_t side = field_0, mask = side - 1;
    double w = 100.0;
    field[0] = 0.0;
#define AT(y, x) field[(y) * side + (x)]
#define NEW_POINT(y, x) AT(y, x) = total / 4 + w * (-w + 2 * w * *uniforms++)
    for (int64_t step = side; step >= 2; step /= 2, w /= decay) {
        int64_t half = step / 2;
        for (int64_t y = 0; y < side; y += step) {
            int64_t down = (y + step) & mask;
            for (int64_t x = 0; x < side; x += step) {
                int64_t right = (x + step) & mask;
                double total = (AT(y, x) + AT(down, x)) + (AT(y, right) + AT(down, right));
                NEW_POINT(y + half, x + half);
            }
        }
        for (int64_t y = 0; y < side; y += step) {
            int64_t up = (y - half) & mask;
            for (int64_t x = 0; x < side; x += step) {
                int64_t right = (x + step) & mask;
                double total = (AT(y + half, x + half) + AT(up, x + half)) + (AT(y, x) + AT(y, right));
                NEW_POINT(y, x + half);
            }
        }
        for (int64_t y = 0; y < side; y += step) {
            int64_t down = (y + step) & mask;
            for (int64_t x = 0; x < side; x += step) {
                int64_t left = (x - half) & mask;
                double total = (AT(y + half, x + half) + AT(y + half, left)) + (AT(y, x) + AT(down, x));
                NEW_POINT(y + half, x);
            }
        }
    }
    return 0;
}

#define LANES 8

KERNEL(fog_blend) {
    ARRAY(const uint8_t, image); ARRAY(const double, field); REAL(amount); ARRAY(uint8_t, out);
    int64_t width = image_1, n = 3 * width, side = field_0, mask = side - 1;
    double *restrict lit = malloc(sizeof(double) * (size_t)(n + side));
    if (!lit) return 1;
    double *restrict layer = lit + n;
    double low = field[0], high = field[0], level[256], lows[LANES], highs[LANES];
    for (int k = 0; k < LANES; k++) lows[k] = highs[k] = field[0];
    int64_t cells = side * side, even = cells / LANES * LANES;
    for (int64_t i = 0; i < even; i += LANES)
        for (int k = 0; k < LANES; k++) {
            lows[k] = field[i + k] < lows[k] ? field[i + k] : lows[k];
            highs[k] = field[i + k] > highs[k] ? field[i + k] : highs[k];
        }
    for (int k = 0; k < LANES; k++) low = lows[k] < low ? lows[k] : low, high = highs[k] > high ? highs[k] : high;
    for (int64_t i = even; i < cells; i++) low = field[i] < low ? field[i] : low, high = field[i] > high ? field[i] : high;
    uint8_t top = 0;
    for (int64_t i = 0; i < image_0 * n; i++) top = image[i] > top ? image[i] : top;
    double span = high - low, brightest = top / 255.0, bound = brightest + amount;
    fill_levels(level);
    for (int64_t y = 0; y < image_0; y++) {
        const double *source = field + (y & mask) * side;
        const uint8_t *line = image + y * n;
        for (int64_t x = 0; x < side; x++) layer[x] = amount * ((source[x] - low) / span);
        for (int64_t x = 0; x < width; x++) {
            double fog = layer[x & mask];
            for (int64_t c = 0; c < 3; c++) lit[3 * x + c] = level[line[3 * x + c]] + fog;
        }
        for (int64_t i = 0; i < n; i++) {
            double value = lit[i] * brightest / bound;
            out[y * n + i] = (uint8_t)(int32_t)((value < 1.0 ? value : 1.0) * 255.0);
        }
    }
    free(lit);
    return 0;
}

KERNEL(weighted_sum) {
    ARRAY(const uint8_t, image); ARRAY(const uint8_t, layer); WHOLE(top); WHOLE(left); REAL(a); REAL(b); ARRAY(uint8_t, out);
    int64_t n = image_1 * image_2;
    for (int64_t y = 0; y < image_0; y++) {
        const uint8_t *crop = layer + ((top + y) * layer_1 + left) * layer_2;
        for (int64_t i = 0; i < n; i++) {
            double value = a * image[y * n + i] + b * crop[i];
            out[y * n + i] = (uint8_t)(int32_t)(value < 255.0 ? value : 255.0);
        }
    }
    return 0;
}

KERNEL(snow_layer) {
    ARRAY(const double, noise); ARRAY(const int64_t, y_index); ARRAY(const double, y_part);
    ARRAY(const int64_t, x_index); ARRAY(const double, x_part); REAL(threshold); ARRAY(uint8_t, out);
    int64_t rows = noise_0, columns = noise_1, width = x_index_0;
    double *restrict line = malloc(sizeof(double) * (size_t)(columns + 1));
    if (!line) return 1;
    for (int64_t y = 0; y < y_index_0; y++) {
        const double *top = noise + y_index[y] * columns, *bottom = noise + least(y_index[y] + 1, rows - 1) * columns;
        double f = y_part[y];
        for (int64_t i = 0; i < columns; i++) line[i] = (1.0 - f) * top[i] + f * bottom[i];
        line[columns] = line[columns - 1];
        for (int64_t x = 0; x < width; x++) {
            int64_t i = x_index[x];
            double g = x_part[x], value = (1.0 - g) * line[i] + g * line[i + 1];
            out[y * width + x] = value < threshold ? 0 : grey_level(value);
        }
    }
    free(line);
    return 0;
}

KERNEL(snow_blend) {
    ARRAY(const uint8_t, image); ARRAY(const uint8_t, layer); REAL(mix); ARRAY(uint8_t, out);
    int64_t height = image_0, width = image_1, n = 3 * width;
    float level[256], keep = (float)mix, rest = (float)(1.0 - mix);
    double flake[256];
    fill_levels(flake);
    for (int i = 0; i < 256; i++) level[i] = (float)i / 255.0f;
    double *restrict near = malloc(sizeof(double) * (size_t)(2 * n) + sizeof(float) * (size_t)n);
    if (!near) return 1;
    double *restrict far = near + n;
    float *restrict mixed = (float *)(far + n);
    for (int64_t y = 0; y < height; y++) {
        const uint8_t *line = image + y * n, *flakes = layer + y * width, *turned = layer + (height - y) * width - 1;
        for (int64_t x = 0; x < width; x++) {
            float pixel[3] = {level[line[3 * x]], level[line[3 * x + 1]], level[line[3 * x + 2]]};
            float light = (pixel[0] * 0.299f + pixel[1] * 0.587f + pixel[2] * 0.114f) * 1.5f + 0.5f;
            double one = flake[flakes[x]], other = flake[turned[-x]];
            for (int c = 0; c < 3; c++) {
                mixed[3 * x + c] = keep * pixel[c] + rest * (pixel[c] > light ? pixel[c] : light);
                near[3 * x + c] = one, far[3 * x + c] = other;
            }
        }
        for (int64_t i = 0; i < n; i++) {
            double sum = ((double)mixed[i] + near[i]) + far[i];
            out[y * n + i] = (uint8_t)(int32_t)((sum < 1.0 ? sum : 1.0) * 255.0);
        }
    }
    free(near);
    return 0;
}

KERNEL(draw_strokes) {
    ARRAY(const double, strokes); WHOLE(samples); ARRAY(double, canvas);
    int64_t height = canvas_0, width = canvas_1, n = strokes_1;
    for (int64_t s = 0; s < n; s++) {
        double x = strokes[s], y = strokes[n + s], dx = strokes[2 * n + s], dy = strokes[3 * n + s];
        double light = strokes[4 * n + s];
        for (int64_t k = 0; k < samples; k++) {
            double t = ((double)k + 0.5) / (double)samples, px = x + t * dx, py = y + t * dy;
            double gx = floor(px), gy = floor(py), fx = px - gx, fy = py - gy;
            int64_t left = modulo((int64_t)gx, width), top = modulo((int64_t)gy, height);
            int64_t right = (left + 1) % width, bottom = (top + 1) % height;
            double share = light / (double)samples * (1.0 - t);
            canvas[top * width + left] += share * (1.0 - fx) * (1.0 - fy);
            canvas[top * width + right] += share * fx * (1.0 - fy);
            canvas[bottom * width + left] += share * (1.0 - fx) * fy;
            canvas[bottom * width + right] += share * fx * fy;
        }
    }
    return 0;
}

// Canny's edges (1986): sums of absolute Sobel differences above 50, largest across the edge, and connected to one above
// 150. Marks: 0 no edge, 1 a candidate, 2 an edge.
static bool find_edges(const uint8_t *restrict image, int64_t height, int64_t width, uint8_t *restrict marks) {
    int64_t stride = width + 2, count = 0; // strengths have a border of zeros
    int32_t *strength = calloc((size_t)((height + 2) * stride), sizeof(int32_t));
    int32_t *slope = malloc(sizeof(int32_t) * (size_t)(2 * height * width + 1));
    int64_t *waiting = malloc(sizeof(int64_t) * (size_t)(height * width + 1));
    if (!strength || !slope || !waiting) {
        free(strength), free(slope), free(waiting);
        return false;
    }
    for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++) {
            const uint8_t *a = image + greatest(y - 1, 0) * width, *b = image + y * width;
            const uint8_t *c = image + least(y + 1, height - 1) * width;
            int64_t l = greatest(x - 1, 0), r = least(x + 1, width - 1);
            int32_t dx = a[r] - a[l] + 2 * (b[r] - b[l]) + c[r] - c[l], dy = c[l] - a[l] + 2 * (c[x] - a[x]) + c[r] - a[r];
            slope[2 * (y * width + x)] = dx, slope[2 * (y * width + x) + 1] = dy;
            strength[(y + 1) * stride + x + 1] = abs(dx) + abs(dy);
        }
    for (int64_t i = 0; i < height * width; i++) {
        const int32_t *at = strength + (i / width + 1) * stride + i % width + 1, here = *at;
        int32_t dx = slope[2 * i], dy = slope[2 * i + 1];
        int64_t flat = (int64_t)abs(dx) * 13573, steep = (int64_t)abs(dy) * 32768; // tan(22.5 degrees) in 15 bits
        bool largest;
        if (steep < flat) largest = here > at[-1] && here >= at[1];
        else if (steep > flat + (int64_t)abs(dx) * 65536) largest = here > at[-stride] && here >= at[stride];
        else {
            int64_t side = (dx ^ dy) < 0 ? -1 : 1;
            largest = here > at[-stride - side] && here > at[stride + side];
        }
        marks[i] = here > 50 && largest ? (here > 150 ? 2 : 1) : 0;
        if (marks[i] == 2) waiting[count++] = i;
    }
    while (count) {
        int64_t i = waiting[--count], y = i / width, x = i % width;
        for (int64_t v = greatest(y - 1, 0); v <= least(y + 1, height - 1); v++)
            for (int64_t u = greatest(x - 1, 0); u <= least(x + 1, width - 1); u++)
                if (marks[v * width + u] == 1) marks[v * width + u] = 2, waiting[count++] = v * width + u;
    }
    free(strength), free(slope), free(waiting);
    return true;
}

// Distances to the nearest edge, at most 20: Borgefors' chamfer distance (1986) with steps of 1, 1.4 and 2.1969, by one pass
// down and one up.
KERNEL(edge_distance) {
    ARRAY(const uint8_t, image); ARRAY(float, out);
    static const float length[8] = {2.1969f, 2.1969f, 2.1969f, 1.4f, 1.0f, 1.4f, 2.1969f, 1.0f};
    int64_t height = image_0, width = image_1, stride = width + 4;
    const int64_t step[8] = {-2 * stride - 1, -2 * stride + 1, -stride - 2, -stride - 1, -stride, -stride + 1, -stride + 2, -1};
    uint8_t *marks = malloc((size_t)(height * width));
    float *distance = malloc(sizeof(float) * (size_t)((height + 4) * stride));
    bool enough = marks && distance && find_edges(image, height, width, marks);
    for (int64_t i = 0; enough && i < (height + 4) * stride; i++) distance[i] = 8192.0f;
    for (int64_t pass = 0; enough && pass < 2; pass++)
        for (int64_t k = 0; k < height * width; k++) {
            int64_t i = pass ? height * width - 1 - k : k;
            float *at = distance + (i / width + 2) * stride + i % width + 2, nearest = marks[i] == 2 ? 0.0f : *at;
            for (int s = 0; s < 8; s++) {
                float other = at[pass ? -step[s] : step[s]] + length[s];
                nearest = other < nearest ? other : nearest;
            }
            *at = nearest;
            out[i] = nearest < 20.0f ? nearest : 20.0f;
        }
    free(marks), free(distance);
    return enough ? 0 : 1;
}
