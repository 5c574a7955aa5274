/* SPDX-License-Identifier: Apache-2.0 */
/* One pass of a transformer for image-to-video compared with diffusers: tokens with a condition, and known tokens,
 * whose time step is 0. On several ranks, all, none or some tokens of a rank's share are known. */
#include "support/engine/find_tensor.h"
#include "support/engine/golden_pass.h"
#include "support/engine/kinds.h"
#include "support/fixture.h"

#include <string.h>

static void compare_pass(const char *golden, const char *model)
{
    static const struct {
        int ranks;
        ith_strategy strategy;
    } groups[] = {{1, ITH_STRATEGY_AUTO},    {2, ITH_STRATEGY_AUTO}, {3, ITH_STRATEGY_AUTO},
                  {4, ITH_STRATEGY_ULYSSES}, {4, ITH_STRATEGY_RING}, {7, ITH_STRATEGY_RING}};
    golden_pass c;
    golden_pass_open(&c, golden, model, OPERANDS_F32);
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++) {
        memset(c.result, 0, (size_t)golden_pass_numbers(&c) * sizeof *c.result);
        c.options.strategy = groups[i].strategy;
        check(context, ith_run_ranks(context, groups[i].ranks, 1, golden_pass_run, &c));
        const double error = golden_pass_error(&c);
        print_message("%d ranks: relative error %.2e\n", groups[i].ranks, error);
        assert_true(error <= 1e-5);
    }
    golden_pass_close(&c);
}

static void tokens_with_a_condition(void **state)
{
    (void)state;
    compare_pass("golden/i2v/dit.safetensors", "golden/i2v/model/transformer");
}

static void tokens_attend_to_images(void **state)
{
    (void)state;
    compare_pass(IMAGE_GOLDEN, IMAGE_DIT);
    compare_pass("golden/i2v21/dit_flf2v.safetensors", "golden/i2v21/transformer_flf2v");
}

static void known_tokens_have_time_step_0(void **state)
{
    (void)state;
    compare_pass("golden/ti2v/dit.safetensors", "golden/ti2v/model/transformer");
}

static ith_status make_image(const golden_pass *c, int64_t rows)
{
    ith_dit_image *image = NULL;
    const ith_status status =
        ith_dit_image_create(context, c->dit, find_tensor(c->file, "image_embeds")->data, rows, &image);
    assert_true(!image == !!status);
    ith_dit_image_free(context, &image);
    return status;
}

/* A model for two images takes the rows of both, a model for one any number, and a model without an image encoder none.
 * A workspace passes tokens only with the images' keys for which it was made. */
static void other_rows_are_refused(void **state)
{
    (void)state;
    golden_pass one, two, none;
    golden_pass_open(&one, IMAGE_GOLDEN, IMAGE_DIT, OPERANDS_F32);
    golden_pass_open(&two, "golden/i2v21/dit_flf2v.safetensors", "golden/i2v21/transformer_flf2v", OPERANDS_F32);
    golden_pass_open(&none, "golden/i2v/dit.safetensors", "golden/i2v/model/transformer", OPERANDS_F32);
    const int64_t rows = one.shape.image_rows;
    assert_true(rows > 1 && two.shape.image_rows == 2 * rows && !none.shape.image_rows);
    assert_int_equal(make_image(&one, rows - 1), ITH_OK);
    assert_int_equal(make_image(&one, 0), ITH_ERR_ARGUMENT);
    assert_int_equal(make_image(&two, rows), ITH_ERR_ARGUMENT);
    ith_dit_image *image = one.image;
    ith_dit_image *wrong = NULL;
    assert_int_equal(ith_dit_image_create(context, none.dit, one.want, rows, &wrong), ITH_ERR_ARGUMENT);
    assert_null(wrong);
    one.image = NULL;
    assert_int_equal(golden_pass_run(context, NULL, &one), ITH_ERR_ARGUMENT);
    one.image = image, one.shape.image_rows = rows - 1;
    assert_int_equal(golden_pass_run(context, NULL, &one), ITH_ERR_ARGUMENT);
    one.shape.image_rows = 0;
    assert_int_equal(golden_pass_run(context, NULL, &one), ITH_ERR_ARGUMENT);
    golden_pass_close(&one), golden_pass_close(&two), golden_pass_close(&none);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_with_a_condition), cmocka_unit_test(tokens_attend_to_images),
        cmocka_unit_test(other_rows_are_refused), cmocka_unit_test(known_tokens_have_time_step_0)};
    return cmocka_run_group_tests_name("dit_image", tests, context_set_up, context_tear_down);
}
