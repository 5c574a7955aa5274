/* SPDX-License-Identifier: Apache-2.0 */
/* Recognises distilled LoRAs by their names, and compares the settings of a run with theirs (lora_advice.h). */
#include "lora_advice.h"

#include "../../base/count.h"
#include "../../base/plain_text.h"
#include "../../base/sized.h"
#include "../lora/lora.h"
#include "pipeline.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The distilled LoRAs that are recognised. The first row whose part is in a name counts. */
static const struct {
    const char *part; /* part of a name, in small letters or capitals */
    ith_lora_advice advice;
} known[] = {
    {"causvid", {"CausVid", 4, 12, 7, 8, 1, ITH_SOLVER_AUTO, "a strength from 0.3 to 1 is usual"}},
    {"fastwan",
     {"FastWan", 3, 3, 0, 0, 1, ITH_SOLVER_AUTO,
      "its own sampler, which adds new noise in every step, is not supported"}},
    {"lightning", {"Lightning (lightx2v)", 4, 4, 5, 5, 1, ITH_SOLVER_EULER, NULL}},
    {"lightx2v", {"lightx2v's step distillation", 4, 4, 5, 5, 1, ITH_SOLVER_EULER, NULL}},
    {"step_distill", {"lightx2v's step distillation", 4, 4, 5, 5, 1, ITH_SOLVER_EULER, NULL}},
    {"distill-lora", {"lightx2v's step distillation", 4, 4, 5, 5, 1, ITH_SOLVER_EULER, NULL}},
};

const ith_lora_advice *ith_lora_advice_of(const char *path)
{
    const char *begin = path + strlen(path);
    for (int slashes = 0; begin > path; begin--)
        if (begin[-1] == '/' && ++slashes == 3)
            break;
    for (int i = 0; i < ITH_COUNT(known); i++)
        if (ith_has_part(begin, known[i].part))
            return &known[i].advice;
    return NULL;
}

/* Appends to text, as far as there is room. */
__attribute__((format(printf, 3, 4))) static void add(char *text, size_t bytes, const char *format, ...)
{
    const size_t length = strlen(text);
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text + length, bytes - length, format, arguments);
    va_end(arguments);
}

static void add_number(char *text, size_t bytes, const char *option, double least, double most)
{
    if (least == most)
        add(text, bytes, " --%s %g", option, least);
    else
        add(text, bytes, " --%s %g to %g", option, least, most);
}

/* Appends the options of the advice that are not in force for experts [first, last]. */
static void add_options(const ith_lora_advice *a, const ith_generate_options *o, int first, int last, char *text,
                        size_t bytes)
{
    const bool guides = o->guidance[first] == a->guidance && o->guidance[last] == a->guidance;
    if (a->steps_least && (o->steps < a->steps_least || o->steps > a->steps_most))
        add_number(text, bytes, "steps", (double)a->steps_least, (double)a->steps_most);
    if (a->shift_least > 0 && (o->shift < a->shift_least || o->shift > a->shift_most))
        add_number(text, bytes, "shift", a->shift_least, a->shift_most);
    if (a->guidance > 0 && !guides)
        add_number(text, bytes, "guidance", a->guidance, a->guidance);
    if (a->solver && o->solver != a->solver)
        add(text, bytes, " --solver %s", ith_solver_name(a->solver));
}

ith_status ith_pipeline_advise(const ith_pipeline *pipeline, const ith_generate_options *options, char *text,
                               size_t bytes)
{
    if (!pipeline)
        return ith_need(NULL, pipeline, "pipeline");
    ith_generate_options full = ITH_GENERATE_OPTIONS_INIT;
    ith_status status =
        ITH_SIZED_READ(pipeline->context, ith_generate_options, ITH_GENERATE_OPTIONS_INIT, options, &full);
    if (!status)
        status = ith_need(pipeline->context, text, "text");
    if (status || !bytes)
        return status;
    text[0] = '\0';
    ith_lora *const *loras = pipeline->model->loras;
    const int experts = pipeline->model->info.experts;
    for (int expert = 0; expert < experts; expert++) {
        const ith_lora *lora = loras[expert];
        for (int i = 0; i < ith_lora_count(lora); i++) {
            const char *path = ith_lora_path(lora, i);
            const ith_lora_advice *advice = ith_lora_advice_of(path);
            char wanted[256] = "";
            if (!advice || (expert && ith_lora_has_path(loras[0], path))) /* the advice was given for expert 0 */
                continue;
            const int last = experts > 1 && ith_lora_has_path(loras[1], path) ? 1 : expert;
            add_options(advice, &full, expert, last, wanted, sizeof wanted);
            if (wanted[0] || advice->note)
                add(text, bytes, "%s is %s%s%s%s%s\n", path, advice->name, wanted[0] ? ", which needs" : "", wanted,
                    advice->note ? "; " : "", advice->note ? advice->note : "");
        }
    }
    return ITH_OK;
}
