// How Python calls a kernel: the buffers of its arguments are opened, and its lock is released meanwhile.
//
// The functions of Python that are needed here belong to its stable interface. Their addresses are handed over when the
// library is loaded, so that it can be compiled without Python's headers, and once for all versions of Python.
#include "native.h"
#ifdef __x86_64__
#include <cpuid.h>
#endif

typedef struct { // Py_buffer
    void *data, *owner;
    intptr_t size, item_size;
    int read_only, axes;
    const char *format;
    intptr_t *shape, *strides, *suboffsets;
    void *internal;
} Buffer;

typedef struct { // in the order of __init__.py
    int (*PyObject_GetBuffer)(void *object, Buffer *buffer, int flags);
    void (*PyBuffer_Release)(Buffer *buffer);
    void *(*PyTuple_GetItem)(void *tuple, intptr_t index);
    unsigned long long (*PyLong_AsUnsignedLongLongMask)(void *object);
    double (*PyFloat_AsDouble)(void *object);
    void *(*PyErr_Occurred)(void);
    void *(*PyEval_SaveThread)(void);
    void (*PyEval_RestoreThread)(void *state);
} Python;

static Python python;

EXPORTED void use_python(const Python *functions) { python = *functions; }

#define MOST 16
#define CONTIGUOUS_WITH_FORMAT (0x20 | 0x18 | 0x04) // PyBUF_C_CONTIGUOUS | PyBUF_FORMAT

// The kind of an array's items by the letter of their format: b for truth values, i and u for whole numbers with and
// without a sign, f for real ones, 0 for anything else. The letter alone does not give the size: an int64 is l on Linux
// and q on Windows, where l has four bytes.
static char kind_of(const char *format) {
    if (!format[0] || format[1]) return 0;
    if (format[0] == '?') return 'b';
    if (strchr("bhilq", format[0])) return 'i';
    if (strchr("BHILQ", format[0])) return 'u';
    if (strchr("fd", format[0])) return 'f';
    return 0;
}

// `types` has two letters per argument: w8 for a whole number, r8 for a real one, else the kind of an array's items and
// their size in bytes. Returns what the kernel returns, or -1 - i if argument i is not of its type.
EXPORTED int call(int (*kernel)(const Argument *), const char *types, void *arguments) {
    Argument values[MOST];
    Buffer buffers[MOST];
    int opened = 0, i = 0, result = 0;
    for (; types[2 * i]; i++) {
        const char kind = types[2 * i];
        const int size = types[2 * i + 1] - '0';
        void *object = python.PyTuple_GetItem(arguments, i);
        Argument *value = values + i;
        if (!object) break;
        if (kind == 'w') {
            value->whole = (int64_t)python.PyLong_AsUnsignedLongLongMask(object);
            if (value->whole == -1 && python.PyErr_Occurred()) break;
        } else if (kind == 'r') {
            value->real = python.PyFloat_AsDouble(object);
            if (value->real == -1.0 && python.PyErr_Occurred()) break;
        } else {
            Buffer *buffer = buffers + opened;
            if (python.PyObject_GetBuffer(object, buffer, CONTIGUOUS_WITH_FORMAT)) break;
            opened++;
            if (kind_of(buffer->format) != kind || buffer->item_size != size || buffer->axes > 3) break;
            value->data = buffer->data;
            for (int axis = 0; axis < 3; axis++) value->shape[axis] = axis < buffer->axes ? buffer->shape[axis] : 1;
        }
    }
    if (types[2 * i]) {
        result = -1 - i;
    } else {
        void *state = python.PyEval_SaveThread();
        result = kernel(values);
        python.PyEval_RestoreThread(state);
    }
    while (opened) python.PyBuffer_Release(buffers + --opened);
    return result;
}

// Which of the compiled versions this processor and its operating system can run: their number in build.py.
EXPORTED int processor_version(void) {
#ifdef __x86_64__
    unsigned a, b, c, d, saved, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !(c & bit_OSXSAVE)) return 0;
    __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0)); // which registers the operating system saves
    if ((saved & 0x06) != 0x06 || !__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(b & bit_AVX2)) return 0;
    unsigned wide = bit_AVX512F | bit_AVX512DQ | bit_AVX512BW | bit_AVX512VL;
    return (saved & 0xE6) == 0xE6 && (b & wide) == wide ? 2 : 1;
#else
    return 0;
#endif
}
