// Operations of AugMix, with the arithmetic of Pillow's.
#include "native.h"

KERNEL(mixture) {
    ARRAY(const uint8_t, image); ARRAY(const uint8_t, chains); ARRAY(const double, weights); REAL(clean);
    ARRAY(uint8_t, out);
    for (int64_t i = 0; i < image_0; i++) {
        double total = clean * image[i];
        for (int64_t k = 0; k < chains_0; k++) total += weights[k] * chains[k * chains_1 + i];
        out[i] = (uint8_t)(int32_t)(total + 0.5);
    }
    return 0;
}

KERNEL(bilinear_affine) {
    ARRAY(const uint8_t, image); ARRAY(uint8_t, out); REAL(xx); REAL(xy); REAL(x0); REAL(yx); REAL(yy); REAL(y0);
    int64_t height = image_0, width = image_1;
    for (int64_t row = 0; row < height; row++) {
        for (int64_t column = 0; column < width; column++) {
            double x = xx * ((double)column + 0.5) + xy * ((double)row + 0.5) + x0;
            double y = yx * ((double)column + 0.5) + yy * ((double)row + 0.5) + y0;
            if (x < 0.0 || x >= (double)width || y < 0.0 || y >= (double)height) continue;
            x -= 0.5;
            y -= 0.5;
            int64_t left = x >= 0.0 ? (int64_t)x : -1, top = y >= 0.0 ? (int64_t)y : -1;
            double across = x - (double)left, down = y - (double)top;
            int64_t near = 3 * greatest(left, 0), far = 3 * least(left + 1, width - 1);
            int64_t upper = 3 * width * greatest(top, 0), lower = 3 * width * least(top + 1, height - 1);
            uint8_t *target = out + 3 * (row * width + column);
            for (int64_t c = 0; c < 3; c++) {
                double first = image[upper + near + c], third = image[lower + near + c];
                double above = first + ((double)image[upper + far + c] - first) * across;
                double below = third + ((double)image[lower + far + c] - third) * across;
                target[c] = (uint8_t)(int32_t)(above + (below - above) * down);
            }
        }
    }
    return 0;
}

KERNEL(histograms) {
    ARRAY(const uint8_t, image); ARRAY(int64_t, counts);
    for (int64_t i = 0; i < image_0 * image_1; i++)
        for (int64_t c = 0; c < image_2; c++) counts[256 * c + image[i * image_2 + c]]++;
    return 0;
}

// Level x to (x - low) * 255 / (high - low), truncated, in the order of Pillow's operations.
KERNEL(stretching_tables) {
    ARRAY(const int64_t, counts); ARRAY(uint8_t, tables);
    for (int64_t c = 0; c < counts_0; c++) {
        int64_t low = 0, high = 255;
        while (low < 255 && !counts[256 * c + low]) low++;
        while (high > 0 && !counts[256 * c + high]) high--;
        double scale = high > low ? 255.0 / (double)(high - low) : 1.0, offset = high > low ? (double)-low * scale : 0.0;
        for (int64_t v = 0; v < 256; v++)
            tables[256 * c + v] = (uint8_t)least(greatest((int64_t)((double)v * scale + offset), 0), 255);
    }
    return 0;
}

// Level x to the number of darker pixels over a 255th of all but the brightest level's, in whole numbers.
KERNEL(flattening_tables) {
    ARRAY(const int64_t, counts); ARRAY(uint8_t, tables);
    for (int64_t c = 0; c < counts_0; c++) {
        int64_t total = 0, brightest = 0;
        for (int64_t v = 0; v < 256; v++) {
            total += counts[256 * c + v];
            if (counts[256 * c + v]) brightest = counts[256 * c + v];
        }
        int64_t step = (total - brightest) / 255, darker = step / 2;
        for (int64_t v = 0; v < 256; v++) {
            tables[256 * c + v] = (uint8_t)(step > 0 ? least(darker / step, 255) : v);
            darker += counts[256 * c + v];
        }
    }
    return 0;
}
