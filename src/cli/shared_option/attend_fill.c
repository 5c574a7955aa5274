/* SPDX-License-Identifier: Apache-2.0 */
/* Shows the choices of a plan as values of options, for --print-config. A choice comes from wisdom if a context without
 * wisdom would choose otherwise. */
#include "attend_options.h"

#include "../cli.h"
#include "device_option.h"

#include <stdio.h>
#include <string.h>

/* The choices of a plan in words. */
typedef struct choice {
    const char *option;
    char text[64];
} choice;
enum { CHOICES = 12 };

static void add_number(choice *c, const char *option, int64_t value)
{
    c->option = option;
    snprintf(c->text, sizeof c->text, "%lld", (long long)value);
}

static void add_word(choice *c, const char *option, const char *word)
{
    c->option = option;
    snprintf(c->text, sizeof c->text, "%s", word ? word : "");
}

static void describe(const ith_plan_info *info, choice choices[CHOICES])
{
    add_word(&choices[0], "strategy", ith_strategy_name(info->strategy));
    add_number(&choices[1], "ulysses", info->ulysses);
    add_number(&choices[2], "ring", info->ring);
    add_word(&choices[3], "direction", ith_direction_name(info->direction));
    add_number(&choices[4], "chunks", info->chunks);
    add_word(&choices[5], "softmax", ith_softmax_name(info->softmax));
    add_word(&choices[6], "kernel", info->kernel);
    add_number(&choices[7], "block-q", info->block_q);
    add_number(&choices[8], "block-kv", info->block_kv);
    add_number(&choices[9], "block-kv-compute", info->block_kv_compute);
    add_number(&choices[10], "block-kv-compute-in", info->block_kv_compute_in);
    add_word(&choices[11], "exchange", ith_exchange_mode_name(info->exchange));
}

int ith_attend_fill(ith_context *context, const ith_attn_problem *problem, const ith_attn_options *asked, int ranks,
                    ith_options *options)
{
    ith_context *plain = NULL;
    ith_plan_info with = ITH_PLAN_INFO_INIT, without = ITH_PLAN_INFO_INIT;
    ith_device_info device;
    choice chosen[CHOICES], ruled[CHOICES];
    char why[256];
    if (ith_plan_predict(context, problem, asked, ranks, 0, true, &with))
        return ith_cli_error("%s", ith_context_error(context));
    int code = ith_cli_context(ITH_TALK_QUIET, &plain);
    if (!code && ith_device_in_use(context, &device))
        code = ith_device_choose(plain, options->command, device.name);
    if (!code && ith_plan_predict(plain, problem, asked, ranks, 0, true, &without))
        code = ith_cli_error("%s", ith_context_error(plain));
    if (!code) {
        describe(&with, chosen);
        describe(&without, ruled);
    }
    for (int i = 0; !code && i < CHOICES; i++)
        ith_option_set(options, ith_option_find(options, chosen[i].option), chosen[i].text,
                       strcmp(chosen[i].text, ruled[i].text) != 0 ? ITH_FROM_WISDOM : ITH_FROM_RULE, why, sizeof why);
    ith_context_destroy(&plain);
    return code;
}
