// The best classes of a model's scores.
#include "native.h"

KERNEL(best_classes) {
    ARRAY(const float, scores); ARRAY(int32_t, top);
    for (int64_t row = 0; row < top_0; row++) {
        const float *score = scores + row * scores_1;
        int32_t *best = top + row * top_1;
        for (int32_t i = 0; i < (int32_t)scores_1; i++) {
            int64_t place = least(i, top_1);
            if (place == top_1 && !(score[i] > score[best[top_1 - 1]])) continue; // most of them
            for (place = least(place, top_1 - 1); place > 0 && score[i] > score[best[place - 1]]; place--)
                best[place] = best[place - 1];
            best[place] = i;
        }
    }
    return 0;
}
