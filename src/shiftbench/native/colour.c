// Brightness and saturation through the hue-saturation-value model, and contrast.
#include "native.h"

// One pixel on [0, 1] to HSV, S * factor + shift and V + shift clipped, and back. Ties between the largest channels go to
// the last one, as in the published conversion.
INLINE void change_hsv(double r, double g, double b, double s_factor, double s_shift, double v_shift, double out[3]) {
    double v = r > g ? (r > b ? r : b) : (g > b ? g : b);
    double low = r < g ? (r < b ? r : b) : (g < b ? g : b);
    double delta = v - low, h = 0.0, s = 0.0;
    if (delta != 0.0) {
        s = delta / v;
        if (b == v) h = 4.0 + (r - g) / delta;
        else if (g == v) h = 2.0 + (b - r) / delta;
        else h = (g - b) / delta;
        h /= 6.0; // between -1/6 and 5/6
        if (h < 0.0) h += 1.0;
    }
    s = clipped(s * s_factor + s_shift);
    v = clipped(v + v_shift);
    double sector = floor(h * 6.0), f = h * 6.0 - sector;
    double p = v * (1.0 - s), q = v * (1.0 - f * s), t = v * (1.0 - (1.0 - f) * s);
    switch ((int)sector % 6) {
    case 0: out[0] = v, out[1] = t, out[2] = p; break;
    case 1: out[0] = q, out[1] = v, out[2] = p; break;
    case 2: out[0] = p, out[1] = v, out[2] = t; break;
    case 3: out[0] = p, out[1] = q, out[2] = v; break;
    case 4: out[0] = t, out[1] = p, out[2] = v; break;
    default: out[0] = v, out[1] = p, out[2] = q;
    }
}

KERNEL(shift_hsv) {
    ARRAY(const uint8_t, image); REAL(s_factor); REAL(s_shift); REAL(v_shift); ARRAY(uint8_t, out);
    double level[256], pixel[3];
    fill_levels(level);
    for (int64_t i = 0; i < 3 * image_0 * image_1; i += 3) {
        change_hsv(level[image[i]], level[image[i + 1]], level[image[i + 2]], s_factor, s_shift, v_shift, pixel);
        for (int c = 0; c < 3; c++) out[i + c] = grey_level(pixel[c]);
    }
    return 0;
}

KERNEL(shift_hsv_values) {
    ARRAY(const double, pixels); REAL(s_factor); REAL(s_shift); REAL(v_shift); ARRAY(double, out);
    for (int64_t i = 0; i < 3 * pixels_0; i += 3)
        change_hsv(pixels[i], pixels[i + 1], pixels[i + 2], s_factor, s_shift, v_shift, out + i);
    return 0;
}

KERNEL(brighten) {
    ARRAY(const uint8_t, image); ARRAY(const uint16_t, table); REAL(v_shift); ARRAY(uint8_t, out);
    double level[256], pixel[3];
    fill_levels(level);
    for (int64_t i = 0; i < 3 * (out_0 / 3); i += 3) {
        int32_t r = image[i], g = image[i + 1], b = image[i + 2];
        int32_t top = r > g ? (r > b ? r : b) : (g > b ? g : b), bottom = r < g ? (r < b ? r : b) : (g < b ? g : b);
        const uint16_t *row = table + (top << 8);
        uint16_t red = row[r], green = row[g], blue = row[b];
        bool doubtful = (red | green | blue) > 255 || r + g + b - bottom == 2 * top;
        if (doubtful && top != bottom) {
            change_hsv(level[r], level[g], level[b], 1.0, 0.0, v_shift, pixel);
            for (int c = 0; c < 3; c++) out[i + c] = grey_level(pixel[c]);
        } else {
            out[i] = (uint8_t)red, out[i + 1] = (uint8_t)green, out[i + 2] = (uint8_t)blue;
        }
    }
    return 0;
}

KERNEL(contrast) {
    ARRAY(const uint8_t, image); REAL(factor); ARRAY(uint8_t, out);
    int64_t pixels = image_0 / 3;
    double level[256], red = 0.0, green = 0.0, blue = 0.0;
    fill_levels(level);
    for (int64_t i = 0; i < 3 * pixels; i += 3) {
        red += level[image[i]];
        green += level[image[i + 1]];
        blue += level[image[i + 2]];
    }
    uint8_t table[3][256];
    double sums[3] = {red, green, blue};
    for (int c = 0; c < 3; c++) {
        double mean = sums[c] / (double)pixels;
        for (int v = 0; v < 256; v++) table[c][v] = grey_level((level[v] - mean) * factor + mean);
    }
    for (int64_t i = 0; i < 3 * pixels; i += 3) {
        out[i] = table[0][image[i]];
        out[i + 1] = table[1][image[i + 1]];
        out[i + 2] = table[2][image[i + 2]];
    }
    return 0;
}
