/* SPDX-License-Identifier: Apache-2.0 */
/* The memory, the processors and the threads that a process may take, read from made-up /proc and /sys folders. */
#include "base/control_groups.h"
#include "base/machine_memory.h"
#include "support/in_range.h"
#include "support/temporary.h"

#include <ithaca/ithaca.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char *root;

static int root_set_up(void **state)
{
    (void)state;
    root = temporary_folder();
    return 0;
}

static int root_tear_down(void **state)
{
    (void)state;
    temporary_remove(root);
    return 0;
}

/* Writes a file below the root, with the folders that it lies in. */
static void put(const char *name, const char *text)
{
    char path[1024];
    snprintf(path, sizeof path, "%s%s", root, name);
    for (char *slash = strchr(path + strlen(root) + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(path, 0777);
        *slash = '/';
    }
    temporary_write(path, text, strlen(text));
}

static void put_system(const char *groups)
{
    put("/proc/meminfo", "MemTotal:       32000000 kB\nMemFree:         1000000 kB\nMemAvailable:    8000000 kB\n");
    put("/proc/self/limits", "Limit                     Soft Limit           Hard Limit           Units\n"
                             "Max address space         unlimited            unlimited            bytes\n");
    put("/proc/self/statm", "1000 100 50 1 0 200 0\n");
    put("/proc/self/cgroup", groups);
}

static void expect(int64_t bytes, const char *word)
{
    ith_machine_memory memory = ith_machine_memory_read(root);
    assert_int_equal(memory.free.bytes, bytes);
    assert_non_null(strstr(memory.free.source, word));
}

static void nothing_known_is_no_limit(void **state)
{
    (void)state;
    expect(INT64_MAX, "known");
}

static void a_machine_without_limits_has_what_is_available(void **state)
{
    (void)state;
    put_system("0::/user.slice\n");
    expect(INT64_C(8000000) * 1024, "machine");
}

static void the_limit_on_address_space_counts_what_is_mapped(void **state)
{
    (void)state;
    put_system("");
    put("/proc/self/limits", "Max address space         1000000000           unlimited            bytes\n");
    expect(1000000000 - 1000 * sysconf(_SC_PAGESIZE), "ulimit");
    assert_int_equal(ith_machine_memory_read(root).shared.bytes,
                     INT64_C(8000000) * 1024); /* each process has this limit */
    put("/proc/self/statm", "100000000 100 50 1 0 200 0\n");
    expect(0, "ulimit");
}

static void the_smallest_group_of_version_2_counts_without_its_cache(void **state)
{
    (void)state;
    put_system("0::/outer/inner\n");
    put("/sys/fs/cgroup/outer/inner/memory.max", "max\n");
    put("/sys/fs/cgroup/outer/inner/memory.current", "700\n");
    expect(INT64_C(8000000) * 1024, "machine");
    put("/sys/fs/cgroup/outer/memory.max", "5000000\n");
    put("/sys/fs/cgroup/outer/memory.current", "4000000\n");
    expect(1000000, "control group");
    put("/sys/fs/cgroup/outer/memory.stat", "anon 900000\nfile 3000000\ninactive_file 2000000\nactive_file 1000000\n");
    expect(4000000, "control group");
    put("/sys/fs/cgroup/outer/inner/memory.max", "3000000\n");
    expect(3000000 - 700, "control group");
    assert_int_equal(ith_machine_memory_read(root).shared.bytes, 3000000 - 700);
    put("/sys/fs/cgroup/outer/inner/memory.stat", "inactive_file_pages 90\ninactive_file 500\nactive_file 0\n");
    expect(3000000 - 200, "control group");
}

/* The files of a group are not read at the same time, so its cache may seem larger than its use. */
static void a_group_has_no_more_than_its_limit(void **state)
{
    (void)state;
    put_system("0::/group\n");
    put("/sys/fs/cgroup/group/memory.max", "5000000\n");
    put("/sys/fs/cgroup/group/memory.current", "1000\n");
    put("/sys/fs/cgroup/group/memory.stat", "inactive_file 900\nactive_file 400\n");
    expect(5000000, "control group");
}

/* Where both versions are mounted, version 2 lies in a folder of its own. */
static void groups_of_both_versions_count(void **state)
{
    (void)state;
    put_system("5:memory:/inner\n0::/inner\n");
    put("/sys/fs/cgroup/memory/inner/memory.limit_in_bytes", "6000000\n");
    put("/sys/fs/cgroup/memory/inner/memory.usage_in_bytes", "0\n");
    expect(6000000, "control group");
    put("/sys/fs/cgroup/unified/inner/memory.max", "4000000\n");
    put("/sys/fs/cgroup/unified/inner/memory.current", "0\n");
    expect(4000000, "control group");
}

/* A name such as /../other is of a group outside of the visible hierarchy, whose root counts alone. Two dots within a
 * name mean nothing. */
static void a_group_may_be_out_of_sight(void **state)
{
    (void)state;
    put("/sys/fs/other/memory.max", "1\n");
    put("/sys/fs/other/memory.current", "0\n");
    put("/sys/fs/cgroup/memory.max", "4000000\n");
    put("/sys/fs/cgroup/memory.current", "0\n");
    put("/sys/fs/cgroup/a..b/memory.max", "3000000\n");
    put("/sys/fs/cgroup/a..b/memory.current", "0\n");
    put_system("0::/../other\n");
    expect(4000000, "control group");
    put_system("0::/..\n");
    expect(4000000, "control group");
    put_system("0::/a..b/c\n");
    expect(3000000, "control group");
}

static void groups_of_version_1_count(void **state)
{
    (void)state;
    put_system("4:cpu,cpuacct:/elsewhere\n5:memory:/docker/abc\n0::/\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "6000000\n"); /* the only file that a container sees */
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "2000000\n");
    put("/sys/fs/cgroup/memory/memory.stat",
        "inactive_file 7\nactive_file 9\ntotal_inactive_file 300000\ntotal_active_file 200000\n");
    put("/sys/fs/cgroup/elsewhere/memory.max", "1\n");
    put("/sys/fs/cgroup/elsewhere/memory.current", "1\n");
    expect(4500000, "control group");
    put("/sys/fs/cgroup/memory/docker/abc/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/docker/abc/memory.usage_in_bytes", "2000000\n");
    expect(4500000, "control group");
}

static void nonsense_is_no_limit(void **state)
{
    (void)state;
    put_system("nonsense\n0::relative\n:::::\n0::/../../etc\n0:\n\n");
    put("/proc/meminfo", "MemAvailable: lots\nMemAvailable: -5 kB\nMemAvailable: 9223372036854775807 kB\n");
    put("/sys/fs/cgroup/memory.max", "-7\n");
    put("/sys/fs/cgroup/memory.current", "\n");
    expect(INT64_MAX, "known");
}

static void this_machine_has_some(void **state)
{
    (void)state;
    ith_machine_memory memory = ith_machine_memory_read("");
    assert_true(memory.free.bytes > 0);
}

/* Writes a file of a control group, after which the limit is `expected`. */
static void expect_after(const char *path, const char *text, int64_t (*limit)(const char *), int64_t expected)
{
    put(path, text);
    assert_int_equal(limit(root), expected);
}

static void the_smallest_quota_of_version_2_counts(void **state)
{
    (void)state;
    put_system("0::/outer/inner\n");
    assert_int_equal(ith_processor_quota(root), INT64_MAX);
    expect_after("/sys/fs/cgroup/cpu.max", "max 100000\n", ith_processor_quota, INT64_MAX);
    expect_after("/sys/fs/cgroup/outer/inner/cpu.max", "400000 100000\n", ith_processor_quota, 4);
    expect_after("/sys/fs/cgroup/outer/cpu.max", "250000 100000\n", ith_processor_quota, 3);
    expect_after("/sys/fs/cgroup/cpu.max", "1000 100000\n", ith_processor_quota, 1);
}

static void quotas_of_version_1_count(void **state)
{
    (void)state;
    put_system("5:cpuset:/other\n4:cpu,cpuacct:/docker/abc\n3:memory:/other\n");
    put("/sys/fs/cgroup/cpu/other/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/other/cpu.cfs_period_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
    assert_int_equal(ith_processor_quota(root), INT64_MAX);
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us", "800000\n");
    put("/sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us", "100000\n");
    assert_int_equal(ith_processor_quota(root), 8);
}

static void the_smallest_number_of_tasks_counts(void **state)
{
    (void)state;
    put_system("5:pids:/docker/abc\n0::/user.slice/session\n");
    assert_int_equal(ith_task_limit(root), INT64_MAX);
    expect_after("/sys/fs/cgroup/pids.max", "max\n", ith_task_limit, INT64_MAX);
    expect_after("/sys/fs/cgroup/user.slice/pids.max", "512\n", ith_task_limit, 512);
    expect_after("/sys/fs/cgroup/pids/docker/abc/pids.max", "300\n", ith_task_limit, 300);
}

static void this_process_has_a_processor(void **state)
{
    (void)state;
    assert_true(in_range(ith_processor_count(), 1, sysconf(_SC_NPROCESSORS_ONLN)));
}

static void nonsense_is_no_quota(void **state)
{
    (void)state;
    put_system("0::/\n4:cpu:/\n");
    put("/sys/fs/cgroup/cpu.max", "200000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "100000\n");
    put("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "0\n");
    assert_int_equal(ith_processor_quota(root), INT64_MAX);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, root_set_up, root_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(nothing_known_is_no_limit),
        TEST(a_machine_without_limits_has_what_is_available),
        TEST(the_limit_on_address_space_counts_what_is_mapped),
        TEST(the_smallest_group_of_version_2_counts_without_its_cache),
        TEST(a_group_has_no_more_than_its_limit),
        TEST(groups_of_version_1_count),
        TEST(groups_of_both_versions_count),
        TEST(a_group_may_be_out_of_sight),
        TEST(the_smallest_quota_of_version_2_counts),
        TEST(quotas_of_version_1_count),
        TEST(nonsense_is_no_quota),
        TEST(the_smallest_number_of_tasks_counts),
        TEST(this_process_has_a_processor),
        TEST(nonsense_is_no_limit),
        TEST(this_machine_has_some),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
