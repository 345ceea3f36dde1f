/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.h: the one matrix product that all layers and gradients use. */
#ifndef GPT_MATMUL_H
#define GPT_MATMUL_H

#include <stdbool.h>
#include <stddef.h>

/* A matrix to read: element (row, column) lies at row * row_stride + column * column_stride. Swap the strides to transpose. */
typedef struct gpt_matrix {
    const void *data;
    size_t row_stride, column_stride;
    bool bf16; /* elements are bf16 instead of fp32 */
} gpt_matrix;

/* Where the product goes. */
typedef struct gpt_product {
    void *data;        /* row-major, one row after the other */
    bool bf16;         /* round to bf16 when storing */
    const float *bias; /* one value for each column, or NULL */
} gpt_product;

/* out[rows][columns] = a[rows][inner] * b[inner][columns] (+ bias). `a` is fp32. One thread sums each element over `inner` in
 * ascending order, so the number of threads never changes a bit. `panels` is scratch memory of gpt_matmul_panel_floats(inner)
 * for each thread. */
void gpt_matmul(size_t rows, size_t columns, size_t inner, gpt_matrix a, gpt_matrix b, gpt_product out, float *panels,
                int threads);

size_t gpt_matmul_panel_floats(size_t inner);

#endif
