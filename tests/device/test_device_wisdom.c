/* SPDX-License-Identifier: Apache-2.0 */
/* Plans on a device that measure their kernel, and wisdom about devices. ITHACA_TEST_DEVICE names the device. On the
 * fake device tests can make the first kernel slow. */
#include "device/device_fixture.h"
#include "plan/strategy_wisdom.h"
#include "support/in_rank.h"
#include "support/plan_trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A problem that both kernels of the fake device take. */
static trial device_trial(ith_effort effort)
{
    trial t = new_trial();
    t.problem.dtype = ITH_BF16;
    t.options.effort = effort;
    t.execute = false; /* its tensors lie in memory of the host */
    return t;
}

/* The first kernel of the list that takes the problem of device_trial. */
static const char *first_kernel(void)
{
    ith_context *fresh = NULL;
    trial t = device_trial(ITH_EFFORT_ESTIMATE);
    check(NULL, ith_context_create(NULL, &fresh));
    check(fresh, ith_context_use_device(fresh, device_name));
    check(fresh, run_trial_in(fresh, &t, 1));
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_ESTIMATED);
    ith_context_destroy(&fresh);
    return t.info.kernel;
}

/* Makes the first kernel of the fake device slow, or no longer slow. On a busy machine, under sanitizers, the other
 * kernel takes several milliseconds. */
static void slow_down(bool slow)
{
    if (device_fake)
        atomic_store(&device_fake->delay_us, slow ? 100000 : 0);
}

/* Makes a plan on `ranks` ranks, and checks the origin of its kernel. */
static trial plan(ith_context *c, ith_effort effort, int ranks, ith_kernel_origin origin)
{
    trial t = device_trial(effort);
    check(c, run_trial_in(c, &t, ranks));
    assert_int_equal(t.info.kernel_origin, origin);
    return t;
}

/* The first plan measures. Later plans and predictions take its result, whatever effort they ask for. */
static void kernels_are_measured_once(void **state)
{
    (void)state;
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    const char *first = first_kernel();
    trial t = plan(context, ITH_EFFORT_ESTIMATE, 1, ITH_KERNEL_ESTIMATED);
    assert_string_equal(t.info.kernel, first);
    slow_down(true);
    t = plan(context, ITH_EFFORT_MEASURE, 3, ITH_KERNEL_MEASURED);
    slow_down(false);
    const char *measured = t.info.kernel;
    printf("measured: %s, estimated: %s\n", measured, first);
    if (device_fake)
        assert_string_equal(measured, "f32_fake");
    for (int ranks = 1; ranks <= 4; ranks++) {
        t = plan(context, ranks % 2 ? ITH_EFFORT_MEASURE : ITH_EFFORT_ESTIMATE, ranks, ITH_KERNEL_RECALLED);
        assert_string_equal(t.info.kernel, measured);
    }
    check(context, ith_plan_predict(context, &t.problem, NULL, 2, 1, true, &info));
    assert_string_equal(info.kernel, measured);
    assert_int_equal(info.kernel_origin, ITH_KERNEL_RECALLED);
    assert_string_equal(first_kernel(), first); /* a new context has no wisdom */
}

/* Wisdom about a type, a head size and a softmax is not used for others. */
static void other_subjects_are_estimated(void **state)
{
    (void)state;
    plan(context, ITH_EFFORT_MEASURE, 1, ITH_KERNEL_MEASURED);
    trial t = device_trial(ITH_EFFORT_ESTIMATE);
    t.problem.head_dim = 16;
    check(context, run_trial_in(context, &t, 1));
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_ESTIMATED);
    t = device_trial(ITH_EFFORT_ESTIMATE);
    t.options.softmax = ITH_SOFTMAX_FIXED_M;
    check(context, run_trial_in(context, &t, 1));
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_ESTIMATED);
    t.options.effort = ITH_EFFORT_MEASURE;
    check(context, run_trial_in(context, &t, 1));
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_MEASURED);
}

/* The fastest kernel is not used for a problem that it does not take. If only one kernel takes a problem, nothing is
 * measured. */
static void kernels_that_cannot_are_passed_over(void **state)
{
    (void)state;
    if (!device_fake)
        skip();
    trial t = device_trial(ITH_EFFORT_MEASURE);
    t.problem.dtype = ITH_F32; /* 16bit_fake takes no f32 */
    check(context, run_trial_in(context, &t, 1));
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_ESTIMATED);
    assert_string_equal(t.info.kernel, "f32_fake");
    t = device_trial(ITH_EFFORT_MEASURE);
    t.options.kernel = "16bit_fake";
    check(context, run_trial_in(context, &t, 2));
    assert_int_equal(t.info.kernel_origin, ITH_KERNEL_NAMED);
}

/* The processor and the device have their entries in the same wisdom, in memory and in a file, and do not use each
 * other's. */
static void wisdom_of_the_processor_is_another(void **state)
{
    (void)state;
    char path[] = "/tmp/ithaca_device_wisdom_XXXXXX", lock[sizeof path + 8];
    const int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    unlink(path);
    slow_down(true);
    const trial on_device = plan(context, ITH_EFFORT_MEASURE, 1, ITH_KERNEL_MEASURED);
    slow_down(false);
    check(context, ith_context_use_device(context, "cpu"));
    const trial on_cpu = plan(context, ITH_EFFORT_ESTIMATE, 1, ITH_KERNEL_ESTIMATED);
    assert_string_not_equal(on_cpu.info.kernel, on_device.info.kernel);
    check(context, ith_wisdom_save(context, path));

    ith_context *other = NULL;
    check(NULL, ith_context_create(NULL, &other));
    check(other, ith_wisdom_load(other, path));
    check(other, ith_context_use_device(other, device_name));
    const trial recalled = plan(other, ITH_EFFORT_ESTIMATE, 1, ITH_KERNEL_RECALLED);
    assert_string_equal(recalled.info.kernel, on_device.info.kernel);
    ith_context_destroy(&other);
    unlink(path);
    snprintf(lock, sizeof lock, "%s.lock", path);
    unlink(lock);
}

/* Puts a ring of three ranks into the wisdom, for the problem of a trial on the device, or the processor, of the
 * context. */
static void put_ring(const trial *t)
{
    ith_attn_setting setting;
    const ith_group group = {.ranks = 3, .blocks = {3, 3}};
    ith_plan_info info = ITH_PLAN_INFO_INIT;
    ith_wisdom *wisdom = NULL;
    info.ulysses = 1, info.ring = 3, info.chunks = 1;
    info.softmax = ITH_SOFTMAX_ONLINE, info.direction = ITH_DIRECTION_UNI;
    check(context, ith_attn_setting_init(context, &t->problem, 3, 0, &setting));
    check(context, ith_wisdom_open(context, &wisdom));
    ith_strategy_wisdom_put(wisdom, &setting, &group, &info, 0.1, 0.2);
    ith_wisdom_close(context);
}

static void strategies_belong_to_a_device(void **state)
{
    (void)state;
    trial t = plan(context, ITH_EFFORT_ESTIMATE, 3, ITH_KERNEL_ESTIMATED);
    assert_int_equal(t.info.strategy, ITH_STRATEGY_ULYSSES);
    put_ring(&t);
    t = plan(context, ITH_EFFORT_ESTIMATE, 3, ITH_KERNEL_ESTIMATED);
    assert_int_equal(t.info.strategy, ITH_STRATEGY_RING);
    check(context, ith_context_use_device(context, "cpu"));
    t = plan(context, ITH_EFFORT_ESTIMATE, 3, ITH_KERNEL_ESTIMATED);
    assert_int_equal(t.info.strategy, ITH_STRATEGY_ULYSSES);
}

/* Whichever call of a measurement fails, all ranks get an error, no memory is lost, and the device still works. calls,
 * refuse: fields of fake_control_table, the count of calls and the number of the call that fails. A measurement is a
 * loop of equal calls, so each of the first calls is tried, and later ones at intervals of ten times
 * ITHACA_PLAN_STEP. */
static void fail_each(atomic_long *calls, atomic_long *refuse)
{
    const char *step = getenv("ITHACA_PLAN_STEP");
    const long interval = step ? 10 * atol(step) : 13;
    bool refused = true;
    for (long n = 0; refused; n += n < 24 ? 1 : interval) {
        ith_context *fresh = NULL;
        trial t = device_trial(ITH_EFFORT_MEASURE);
        check(NULL, ith_context_create(NULL, &fresh));
        check(fresh, ith_context_use_device(fresh, device_name));
        const long streams = atomic_load(&device_fake->streams);
        const int64_t held = atomic_load(&device_fake->device_held);
        atomic_store(refuse, atomic_load(calls) + n);
        const ith_status status = run_trial_in(fresh, &t, 2);
        refused = atomic_load(calls) > atomic_load(refuse);
        atomic_store(refuse, -1);
        if (!status != !refused)
            fail_msg("call %ld: %s", n, ith_status_name(status));
        assert_int_equal(atomic_load(&device_fake->streams), streams);
        assert_int_equal(atomic_load(&device_fake->device_held), held);
        if (n % 8 > 0) /* a measurement takes long */
            t.options.effort = ITH_EFFORT_ESTIMATE;
        check(fresh, run_trial_in(fresh, &t, 2));
        ith_context_destroy(&fresh);
    }
}

static void calls_of_a_measurement_may_fail(void **state)
{
    (void)state;
    if (!device_fake)
        skip();
    fail_each(&device_fake->calls, &device_fake->refuse);
    fail_each(&device_fake->runs, &device_fake->fail);
}

int main(void)
{
    device_require();
#define TEST(name) cmocka_unit_test_setup_teardown(name, device_context_set_up, context_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(kernels_are_measured_once),           TEST(other_subjects_are_estimated),
        TEST(kernels_that_cannot_are_passed_over), TEST(wisdom_of_the_processor_is_another),
        TEST(strategies_belong_to_a_device),       TEST(calls_of_a_measurement_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
