// What an image is after it was saved as a JPEG file and read again: every step of the baseline codec but the lossless one.
//
// Colours to luminance and chroma, chroma halved in both directions, blocks of 8 x 8 transformed, quantised, transformed
// back, chroma doubled by a triangle filter, and colours again. The steps and their rounding are those of the reference
// implementation by the Independent JPEG Group (slow integer transform, "fancy" upsampling), which is what Pillow and
// OpenCV run by default; the tests compare with both.
#include "native.h"

#define BITS 13 // of the fractions of the transform's constants
#define SPARE 2 // bits that intermediate results carry beyond whole numbers

INLINE int32_t rounded(int32_t x, int bits) { return (x + (1 << (bits - 1))) >> bits; }
INLINE uint8_t level(int32_t x) { return (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x); }

// The rotations that both transforms share (Loeffler, Ligtenberg and Moschytz 1989), with 13-bit constants.
INLINE void turn_odd(int32_t a, int32_t b, int32_t c, int32_t d, int32_t out[4]) {
    int32_t z1 = (a + d) * -7373, z2 = (b + c) * -20995, z5 = (a + c + b + d) * 9633;
    int32_t z3 = (a + c) * -16069 + z5, z4 = (b + d) * -3196 + z5;
    out[0] = a * 2446 + z1 + z3;
    out[1] = b * 16819 + z2 + z4;
    out[2] = c * 25172 + z2 + z3;
    out[3] = d * 12299 + z1 + z4;
}

// Cosine transforms of the eight columns of a block; `last` is the second of the two passes.
INLINE void forward_columns(int32_t block[64], bool last) {
    for (int i = 0; i < 8; i++) {
        int32_t *x = block + i;
        int32_t s0 = x[0] + x[56], s1 = x[8] + x[48], s2 = x[16] + x[40], s3 = x[24] + x[32], odd[4];
        turn_odd(x[24] - x[32], x[16] - x[40], x[8] - x[48], x[0] - x[56], odd);
        int32_t a = s0 + s3, b = s1 + s2, c = s1 - s2, d = s0 - s3, z = (c + d) * 4433;
        int shift = last ? BITS + SPARE : BITS - SPARE;
        x[0] = last ? rounded(a + b, SPARE) : (a + b) * (1 << SPARE);
        x[32] = last ? rounded(a - b, SPARE) : (a - b) * (1 << SPARE);
        x[16] = rounded(z + d * 6270, shift);
        x[48] = rounded(z - c * 15137, shift);
        x[56] = rounded(odd[0], shift);
        x[40] = rounded(odd[1], shift);
        x[24] = rounded(odd[2], shift);
        x[8] = rounded(odd[3], shift);
    }
}

INLINE void inverse_columns(int32_t block[64], int shift) {
    for (int i = 0; i < 8; i++) {
        int32_t *x = block + i, odd[4];
        int32_t z = (x[16] + x[48]) * 4433, c = z - x[48] * 15137, d = z + x[16] * 6270;
        int32_t a = (x[0] + x[32]) * (1 << BITS), b = (x[0] - x[32]) * (1 << BITS);
        turn_odd(x[56], x[40], x[24], x[8], odd);
        int32_t e0 = a + d, e3 = a - d, e1 = b + c, e2 = b - c;
        x[0] = rounded(e0 + odd[3], shift), x[56] = rounded(e0 - odd[3], shift);
        x[8] = rounded(e1 + odd[2], shift), x[48] = rounded(e1 - odd[2], shift);
        x[16] = rounded(e2 + odd[1], shift), x[40] = rounded(e2 - odd[1], shift);
        x[24] = rounded(e3 + odd[0], shift), x[32] = rounded(e3 - odd[0], shift);
    }
}

INLINE void transpose(int32_t block[64]) {
    for (int i = 1; i < 8; i++)
        for (int j = 0; j < i; j++) {
            int32_t kept = block[i * 8 + j];
            block[i * 8 + j] = block[j * 8 + i];
            block[j * 8 + i] = kept;
        }
}

// The quantised coefficients of one block of a plane.
INLINE void analyse(const uint8_t *corner, int64_t width, const int32_t *restrict table, int32_t block[64]) {
    for (int row = 0; row < 8; row++) // rows are read, and written, as columns
        for (int i = 0; i < 8; i++) block[i * 8 + row] = corner[row * width + i] - 128;
    forward_columns(block, false);
    transpose(block);
    forward_columns(block, true);
    // The transform is eight times too large. Numbers below 2^16 divide exactly enough in single precision: a quotient
    // below a whole number is below it by more than rounding can add.
    for (int i = 0; i < 64; i++) {
        int32_t step = table[i] * 8, size = (int32_t)((float)(abs(block[i]) + step / 2) / (float)step);
        block[i] = block[i] < 0 ? -size : size;
    }
}

// Every block of a plane whose sides are multiples of eight, quantised in place.
static void quantise(uint8_t *restrict plane, int64_t height, int64_t width, const int32_t *restrict table) {
    int32_t block[64];
    for (int64_t y = 0; y < height; y += 8)
        for (int64_t x = 0; x < width; x += 8) {
            uint8_t *corner = plane + y * width + x;
            analyse(corner, width, table, block);
            for (int i = 0; i < 64; i++) block[i] *= table[i];
            inverse_columns(block, BITS - SPARE);
            transpose(block);
            inverse_columns(block, BITS + SPARE + 3);
            for (int row = 0; row < 8; row++)
                for (int i = 0; i < 8; i++) corner[row * width + i] = level(block[i * 8 + row] + 128);
        }
}

// Means of 2 x 2 pixels, rounded down and up in turn; `plane` has an even width and at least `height` rows.
static void halve(const uint8_t *restrict plane, int64_t height, int64_t width, int64_t stride, uint8_t *restrict out) {
    for (int64_t y = 0; y < (height + 1) / 2; y++) {
        const uint8_t *top = plane + 2 * y * stride, *bottom = 2 * y + 1 < height ? top + stride : top;
        for (int64_t x = 0; x < width; x++)
            out[y * width + x] = (uint8_t)((top[2 * x] + top[2 * x + 1] + bottom[2 * x] + bottom[2 * x + 1] + 1 + (x & 1)) >> 2);
    }
}

// One row of a plane at twice its size: 9, 3, 3 and 1 sixteenths of the four nearest; tiny planes are repeated.
static void double_row(const uint8_t *restrict near, const uint8_t *restrict far, int64_t count, uint8_t *restrict out) {
    if (count <= 2) {
        for (int64_t x = 0; x < 2 * count; x++) out[x] = near[x / 2];
        return;
    }
    out[0] = (uint8_t)(((near[0] * 3 + far[0]) * 4 + 8) >> 4);
    for (int64_t x = 0; x + 1 < count; x++) {
        int32_t here = near[x] * 3 + far[x], right = near[x + 1] * 3 + far[x + 1];
        out[2 * x + 1] = (uint8_t)((here * 3 + right + 7) >> 4);
        out[2 * x + 2] = (uint8_t)((right * 3 + here + 8) >> 4);
    }
    out[2 * count - 1] = (uint8_t)(((near[count - 1] * 3 + far[count - 1]) * 4 + 7) >> 4);
}

static void repeat_edges(uint8_t *plane, int64_t rows, int64_t columns, int64_t height, int64_t width) {
    for (int64_t y = 0; y < rows && columns < width; y++)
        memset(plane + y * width + columns, plane[y * width + columns - 1], (size_t)(width - columns));
    for (int64_t y = rows; y < height; y++) memcpy(plane + y * width, plane + (rows - 1) * width, (size_t)width);
}

INLINE int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

static void split_row(
    const uint8_t *restrict pixels, int64_t count, uint8_t *restrict light, uint8_t *restrict blue, uint8_t *restrict red) {
    const int32_t middle = (128 << 16) + 32767;
    for (int64_t x = 0; x < count; x++) {
        int32_t r = pixels[3 * x], g = pixels[3 * x + 1], b = pixels[3 * x + 2];
        light[x] = (uint8_t)((19595 * r + 38470 * g + 7471 * b + 32768) >> 16);
        blue[x] = (uint8_t)((-11059 * r - 21709 * g + 32768 * b + middle) >> 16);
        red[x] = (uint8_t)((32768 * r - 27439 * g - 5329 * b + middle) >> 16);
    }
}

static void join_row(
    const uint8_t *restrict light, const uint8_t *restrict blue, const uint8_t *restrict red, int64_t count,
    uint8_t *restrict pixels) {
    for (int64_t x = 0; x < count; x++) {
        int32_t y = light[x], cb = blue[x] - 128, cr = red[x] - 128;
        pixels[3 * x] = level(y + ((91881 * cr + 32768) >> 16));
        pixels[3 * x + 1] = level(y + ((-22554 * cb - 46802 * cr + 32768) >> 16));
        pixels[3 * x + 2] = level(y + ((116130 * cb + 32768) >> 16));
    }
}

// Luminance and halved chroma of an image, padded to whole units of 16 x 16 pixels.
typedef struct {
    int64_t height, width, tall, wide, small_h, small_w;
    uint8_t *light, *colour[2], *spare; // spare: four rows of chroma
} Planes;

static bool split(const uint8_t *image, int64_t height, int64_t width, Planes *p) {
    *p = (Planes){.height = height, .width = width, .tall = padded(height, 16), .wide = padded(width, 16)};
    p->small_h = p->tall / 2, p->small_w = p->wide / 2;
    int64_t whole = p->tall * p->wide, small = p->small_h * p->small_w;
    p->light = malloc((size_t)(3 * whole + 2 * small + 4 * p->small_w));
    if (!p->light) return false;
    uint8_t *full[2] = {p->light + whole, p->light + 2 * whole};
    p->colour[0] = p->light + 3 * whole, p->colour[1] = p->colour[0] + small, p->spare = p->colour[1] + small;
    for (int64_t y = 0; y < height; y++) {
        int64_t at = y * p->wide;
        split_row(image + 3 * y * width, width, p->light + at, full[0] + at, full[1] + at);
    }
    repeat_edges(p->light, height, width, p->tall, p->wide);
    for (int c = 0; c < 2; c++) {
        repeat_edges(full[c], height, width, height, p->wide);
        halve(full[c], height, p->small_w, p->wide, p->colour[c]);
        repeat_edges(p->colour[c], (height + 1) / 2, p->small_w, p->small_h, p->small_w);
    }
    return true;
}

KERNEL(jpeg_round_trip) {
    ARRAY(const uint8_t, image); ARRAY(const int32_t, luma); ARRAY(const int32_t, chroma); ARRAY(uint8_t, out);
    Planes p;
    if (!split(image, image_0, image_1, &p)) return 1;
    quantise(p.light, p.tall, p.wide, luma);
    for (int c = 0; c < 2; c++) quantise(p.colour[c], p.small_h, p.small_w, chroma);
    int64_t half_h = (p.height + 1) / 2, half_w = (p.width + 1) / 2;
    uint8_t *row[2] = {p.spare, p.spare + 2 * p.small_w};
    for (int64_t y = 0; y < p.height; y++) {
        int64_t near = y / 2, far = greatest(0, least(half_h - 1, y & 1 ? near + 1 : near - 1));
        for (int c = 0; c < 2; c++)
            double_row(p.colour[c] + near * p.small_w, p.colour[c] + far * p.small_w, half_w, row[c]);
        join_row(p.light + y * p.wide, row[0], row[1], p.width, out + 3 * y * p.width);
    }
    free(p.light);
    return 0;
}

// The order in which a file holds the coefficients of a block.
static const uint8_t ZIGZAG[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,  12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

// Huffman codes of one kind of symbol, optimal for an image.
typedef struct {
    int64_t frequency[257]; // the last one keeps the code of ones free
    uint8_t count[33], symbols[256], length[256];
    uint16_t code[256];
} Codes;

// Annex K.2 of the standard: merge the two rarest symbols (of equal ones the last) until one is left, then limit the
// lengths to 16 bits and number the codes.
static void optimise(Codes *codes) {
    int32_t size[257] = {0}, next[257], used[257], left = 0;
    int64_t *frequency = codes->frequency;
    frequency[256] = 1;
    for (int i = 0; i <= 256; i++) {
        next[i] = -1;
        if (frequency[i]) used[left++] = i;
    }
    for (; left > 1; left--) {
        int a = 0, b = -1; // places of the rarest and of the second rarest
        for (int k = 1; k < left; k++) {
            if (frequency[used[k]] <= frequency[used[a]]) b = a, a = k;
            else if (b < 0 || frequency[used[k]] <= frequency[used[b]]) b = k;
        }
        int i = used[a], other = used[b];
        frequency[i] += frequency[other];
        memmove(used + b, used + b + 1, sizeof(int32_t) * (size_t)(left - b - 1));
        for (size[i]++; next[i] >= 0; size[i]++) i = next[i];
        next[i] = other;
        for (i = other; i >= 0; i = next[i]) size[i]++;
    }
    int64_t count[258] = {0};
    for (int i = 0; i <= 256; i++) count[size[i]]++;
    count[0] = 0;
    for (int i = 257; i > 16; i--)
        while (count[i] > 0) {
            int j = i - 2;
            while (!count[j]) j--;
            count[i] -= 2, count[i - 1]++, count[j + 1] += 2, count[j]--;
        }
    int longest = 16;
    while (!count[longest]) longest--;
    count[longest]--;
    int total = 0;
    for (int bits = 1; bits <= 256; bits++)
        for (int i = 0; i < 256; i++)
            if (size[i] == bits) codes->symbols[total++] = (uint8_t)i;
    uint16_t code = 0;
    for (int bits = 1, k = 0; bits <= 16; bits++, code <<= 1) {
        codes->count[bits] = (uint8_t)count[bits];
        for (int64_t i = 0; i < count[bits]; i++, k++) {
            codes->length[codes->symbols[k]] = (uint8_t)bits;
            codes->code[codes->symbols[k]] = code++;
        }
    }
}

typedef struct {
    uint8_t *at;
    uint64_t pending;
    int bits;
} Stream;

INLINE void put_bits(Stream *stream, uint32_t value, int bits) {
    stream->pending = stream->pending << bits | value;
    for (stream->bits += bits; stream->bits >= 8;) {
        stream->bits -= 8;
        uint8_t byte = (uint8_t)(stream->pending >> stream->bits);
        *stream->at++ = byte;
        if (byte == 255) *stream->at++ = 0;
    }
}

// A symbol, and the low bits of the number that it announces; without a stream it is only counted.
INLINE void put(Stream *stream, Codes *codes, int symbol, int32_t number, int bits) {
    if (!stream) {
        codes->frequency[symbol]++;
        return;
    }
    put_bits(stream, codes->code[symbol], codes->length[symbol]);
    if (bits) put_bits(stream, (uint32_t)(number < 0 ? number - 1 : number) & ((1u << bits) - 1), bits);
}

INLINE int bits_of(int32_t number) { return number ? 32 - __builtin_clz((uint32_t)abs(number)) : 0; }

static void put_block(Stream *stream, Codes codes[2], const int16_t *block, int32_t *before) {
    int32_t step = block[0] - *before;
    *before = block[0];
    put(stream, codes, bits_of(step), step, bits_of(step));
    int last = 0;
    for (int i = 1; i < 64; i++) {
        uint64_t four;
        memcpy(&four, block + (i & ~3), 8);
        if (!four) { // most are zero: four at once
            i |= 3;
            continue;
        }
        int32_t number = block[i];
        if (!number) continue;
        int zeros = i - last - 1;
        for (; zeros > 15; zeros -= 16) put(stream, codes + 1, 0xF0, 0, 0);
        put(stream, codes + 1, zeros << 4 | bits_of(number), number, bits_of(number));
        last = i;
    }
    if (last < 63) put(stream, codes + 1, 0, 0, 0);
}

// All blocks in the order of a file: of each 16 x 16 pixels four of luminance and one of either chroma.
static void put_scan(Stream *stream, Codes codes[4], const int16_t *blocks, int64_t units) {
    int32_t before[3] = {0, 0, 0};
    for (int64_t i = 0; i < 6 * units; i++) {
        int plane = i % 6 < 4 ? 0 : (int)(i % 6) - 3;
        put_block(stream, codes + (plane ? 2 : 0), blocks + 64 * i, before + plane);
    }
}

// Units of six blocks. Blocks wholly beyond the image repeat the mean of the one before, which costs the fewest bits.
static void fill_units(const Planes *p, const int32_t *luma, const int32_t *chroma, int16_t *blocks) {
    int64_t across = p->wide / 16, columns = (p->width + 7) / 8, rows = (p->height + 7) / 8;
    int32_t block[64];
    for (int64_t unit = 0; unit < across * (p->tall / 16); unit++) {
        int64_t y = unit / across, x = unit % across;
        int16_t *out = blocks + 384 * unit;
        for (int k = 0; k < 6; k++, out += 64) {
            int64_t by = 2 * y + (k >> 1), bx = 2 * x + (k & 1);
            if (k < 4 && (by >= rows || bx >= columns)) {
                memset(out, 0, 128);
                out[0] = out[-64];
                continue;
            }
            if (k < 4) analyse(p->light + 8 * (by * p->wide + bx), p->wide, luma, block);
            else analyse(p->colour[k - 4] + 8 * (y * p->small_w + x), p->small_w, chroma, block);
            for (int i = 0; i < 64; i++) out[i] = (int16_t)block[ZIGZAG[i]];
        }
    }
}

INLINE void put_word(Stream *stream, int64_t word) {
    *stream->at++ = (uint8_t)(word >> 8);
    *stream->at++ = (uint8_t)word;
}

static void put_bytes(Stream *stream, const uint8_t *bytes, size_t count) {
    memcpy(stream->at, bytes, count);
    stream->at += count;
}

static void put_header(Stream *stream, const Planes *p, const int32_t *tables[2], const Codes codes[4]) {
    static const uint8_t start[] = {255, 0xD8, 255, 0xE0, 0, 16, 'J', 'F', 'I', 'F', 0, 1, 1, 0, 0, 1, 0, 1, 0, 0};
    static const uint8_t frame[] = {3, 1, 0x22, 0, 2, 0x11, 1, 3, 0x11, 1};
    static const uint8_t scan[] = {255, 0xDA, 0, 12, 3, 1, 0, 2, 0x11, 3, 0x11, 0, 63, 0};
    put_bytes(stream, start, sizeof start);
    for (int t = 0; t < 2; t++) {
        put_word(stream, 0xFFDB), put_word(stream, 67);
        *stream->at++ = (uint8_t)t;
        for (int i = 0; i < 64; i++) *stream->at++ = (uint8_t)tables[t][ZIGZAG[i]];
    }
    put_word(stream, 0xFFC0), put_word(stream, 17);
    *stream->at++ = 8;
    put_word(stream, p->height), put_word(stream, p->width);
    put_bytes(stream, frame, sizeof frame);
    for (int t = 0; t < 4; t++) {
        int64_t total = 0;
        for (int i = 1; i <= 16; i++) total += codes[t].count[i];
        put_word(stream, 0xFFC4), put_word(stream, 19 + total);
        *stream->at++ = (uint8_t)((t & 1) << 4 | t >> 1);
        put_bytes(stream, codes[t].count + 1, 16);
        put_bytes(stream, codes[t].symbols, (size_t)total);
    }
    put_bytes(stream, scan, sizeof scan);
}

// The bytes of a file; out must have room for 600 of them per block of 8 x 8 pixels, and 2,000 more.
KERNEL(jpeg_file) {
    ARRAY(const uint8_t, image); ARRAY(const int32_t, luma); ARRAY(const int32_t, chroma);
    ARRAY(uint8_t, out); ARRAY(int64_t, size);
    Planes p;
    if (!split(image, image_0, image_1, &p)) return 1;
    int64_t units = p.wide / 16 * (p.tall / 16);
    int16_t *blocks = malloc((size_t)units * 768);
    Codes *codes = calloc(4, sizeof(Codes));
    if (blocks && codes) {
        fill_units(&p, luma, chroma, blocks);
        put_scan(NULL, codes, blocks, units);
        for (int t = 0; t < 4; t++) optimise(codes + t);
        Stream stream = {.at = out};
        put_header(&stream, &p, (const int32_t *[2]){luma, chroma}, codes);
        put_scan(&stream, codes, blocks, units);
        if (stream.bits) put_bits(&stream, (1u << (8 - stream.bits)) - 1, 8 - stream.bits);
        put_word(&stream, 0xFFD9);
        *size = stream.at - out;
    }
    bool complete = blocks && codes;
    free(codes);
    free(blocks);
    free(p.light);
    return complete ? 0 : 1;
}
