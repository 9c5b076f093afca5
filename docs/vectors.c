/* Softmax attention in C, held against a reference vector of refattn.

       refattn vectors --out vectors
       cc -O2 -o vectors_c docs/vectors.c -lm && ./vectors_c vectors/softmax-plain.npz

   This attention takes no bias, keep or dropout, so it is judged by softmax-plain.npz, and refuses a file that has them.
   An .npz file is a zip archive of uncompressed .npy arrays: what is needed of both formats is below.  Inputs are exact in
   float32 (they are rounded to bfloat16), and allowed_float32_NAME says how far each entry of NAME may be off. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { size_t shape[4], size; double *x; } Array;

static unsigned char *file;
static size_t length;

static uint32_t number(size_t at, int bytes) {
    uint32_t n = 0;
    for (int i = bytes; i--;) n = n << 8 | file[at + i];
    return n;
}

/* Where the .npy array NAME begins in the file; 0 where there is none. */
static size_t place(const char *name) {
    size_t end = length - 22;
    while (end && number(end, 4) != 0x06054b50) end--;           /* the end of the central directory */
    size_t at = number(end + 16, 4), n = strlen(name);
    for (uint32_t entries = number(end + 10, 2); entries--;) {
        size_t words = number(at + 28, 2), local = number(at + 42, 4);
        if (words == n + 4 && !memcmp(file + at + 46, name, n))
            return local + 30 + number(local + 26, 2) + number(local + 28, 2);
        at += 46 + words + number(at + 30, 2) + number(at + 32, 2);
    }
    return 0;
}

/* The array NAME of the archive, as double; the program ends where it is missing. */
static Array array(const char *name) {
    size_t npy = place(name);
    if (!npy) { fprintf(stderr, "no array is called %s\n", name); exit(2); }
    size_t head = number(npy + 8, 2);
    char *text = calloc(head + 1, 1), *mark;
    memcpy(text, file + npy + 10, head);
    Array a = {{1, 1, 1, 1}, 1, NULL};
    int wide = strstr(text, "'<f8'") != NULL, axis = 0;
    for (mark = strchr(text, '(') + 1; axis < 4 && *mark != ')'; mark += strspn(mark, ", "))
        a.size *= a.shape[axis++] = strtoul(mark, &mark, 10);
    a.x = malloc(a.size * sizeof *a.x);
    for (size_t i = 0; i < a.size; i++) {
        float f;
        if (wide) memcpy(a.x + i, file + npy + 10 + head + 8 * i, 8);
        else { memcpy(&f, file + npy + 10 + head + 4 * i, 4); a.x[i] = f; }
    }
    free(text);
    return a;
}

/* o[b, q, h] = sum over k of softmax_k(q.k / sqrt(d)) v[b, k, h], in float32: what is to be judged. */
static void attention(const Array q, const Array k, const Array v, float *o) {
    size_t keys = k.shape[1], heads = q.shape[2], d = q.shape[3], e = v.shape[3];
    float *s = malloc(keys * sizeof *s);
    for (size_t b = 0; b < q.shape[0]; b++) for (size_t i = 0; i < q.shape[1]; i++) for (size_t h = 0; h < heads; h++) {
        float top = -INFINITY, total = 0;
        for (size_t j = 0; j < keys; j++) {
            s[j] = 0;
            for (size_t n = 0; n < d; n++)
                s[j] += (float)q.x[((b * q.shape[1] + i) * heads + h) * d + n] * (float)k.x[((b * keys + j) * heads + h) * d + n];
#ifndef MISTAKE
            s[j] /= sqrtf((float)d);
#endif
            top = fmaxf(top, s[j]);
        }
        for (size_t j = 0; j < keys; j++) total += s[j] = expf(s[j] - top);
        for (size_t n = 0; n < e; n++) {
            float sum = 0;
            for (size_t j = 0; j < keys; j++) sum += s[j] / total * (float)v.x[((b * keys + j) * heads + h) * e + n];
            o[((b * q.shape[1] + i) * heads + h) * e + n] = sum;
        }
    }
    free(s);
}

int main(int count, char **words) {
    static const char *further[] = {"bias", "keep", "dropout"};
    if (count != 2) { fprintf(stderr, "usage: vectors_c FILE.npz\n"); return 2; }
    FILE *source = fopen(words[1], "rb");
    if (!source) { perror(words[1]); return 2; }
    fseek(source, 0, SEEK_END);
    length = (size_t)ftell(source);
    rewind(source);
    file = malloc(length);
    if (length < 22 || fread(file, 1, length, source) != length) return 2;
    fclose(source);
    for (int i = 0; i < 3; i++)
        if (place(further[i])) { fprintf(stderr, "%s has %s, which this attention does not take\n", words[1], further[i]); return 2; }
    Array output = array("output"), allowed = array("allowed_float32_output");
    float *o = malloc(output.size * sizeof *o);
    attention(array("q"), array("k"), array("v"), o);
    size_t wrong = 0;
    double worst = 0;
    for (size_t i = 0; i < output.size; i++) {
        double error = fabs(o[i] - output.x[i]) / allowed.x[i];
        wrong += !(error <= 1);
        if (!(error <= worst)) worst = error;
    }
    printf("output: %zu of %zu entries are wrong; the largest error is %.2g of what is allowed\n", wrong, output.size, worst);
    return wrong > 0;
}
