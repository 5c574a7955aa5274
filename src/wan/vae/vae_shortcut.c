/* SPDX-License-Identifier: Apache-2.0 */
/* Shortcuts without weights (vae_shortcut.h). */
#include "vae_shortcut.h"

/* Output o takes channel (o copies + part) / repeats of x; `over` is the remainder of this division. From one output to
 * the next, `channel` grows by the quotient of copies / repeats, and `over` by its remainder, so the loop needs no
 * division. */
void ith_vae_shortcut_add(float *y, int64_t out, const float *x, int64_t copies, int64_t repeats, int64_t part)
{
    const int64_t whole = copies / repeats, rest = copies % repeats;
    int64_t channel = part / repeats, over = part % repeats;
    for (int64_t o = 0; o < out; o++) {
        y[o] += x[channel];
        channel += whole, over += rest;
        if (over >= repeats)
            over -= repeats, channel++;
    }
}

/* The general case: numbers are taken one after the other. */
static void add_any(float *y, int64_t out, const float *const *x, int64_t copies, int64_t averaged)
{
    int64_t channel = 0, copy = 0;
    for (int64_t o = 0; o < out; o++) {
        float sum = 0;
        for (int64_t i = 0; i < averaged; i++) {
            sum += x[copy] ? x[copy][channel] : 0;
            if (++copy == copies)
                copy = 0, channel++;
        }
        y[o] += sum / (float)averaged;
    }
}

/* If `averaged` divides `copies`, output o averages some pixels of channel o / (copies / averaged). */
void ith_vae_shortcut_add_means(float *y, int64_t out, const float *const *x, int64_t copies, int64_t averaged)
{
    if (copies % averaged) {
        add_any(y, out, x, copies, averaged);
        return;
    }
    const int64_t parts = copies / averaged, channels = out / parts;
    const float weight = 1 / (float)averaged;
    for (int64_t copy = 0; copy < copies; copy++) {
        float *to = y + copy / averaged;
        const float *from = x[copy];
        for (int64_t c = 0; from && parts == 1 && c < channels; c++)
            to[c] += weight * from[c];
        for (int64_t c = 0; from && parts > 1 && c < channels; c++)
            to[c * parts] += weight * from[c];
    }
}
