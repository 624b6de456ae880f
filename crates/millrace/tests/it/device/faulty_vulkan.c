// A libvulkan.so.1 before the real one, whose driver fails in the ways that the variable VULKAN_FAULTS names, separated by spaces:
//
//   discrete      the processor is shown as a discrete GPU
//   fast          what measures the bandwidth of memory takes no time
//   instance      there is no instance
//   refuses       no device is opened
//   old           the driver knows Vulkan 1.0 only, without extensions
//   few           fewer constants for a kernel than ours have
//   wrong         no kernel does anything
//   small         buffers of kernels have at most 4 MiB
//   lost          the device is lost with the first submit
//
// Each time that the file VULKAN_LOSES is there, it is removed and the open device is lost.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INITIALIZATION_FAILED = -3, DEVICE_LOST = -4, DISCRETE = 2, READ_BLOCKS = 4096 };

typedef void (*Function)(void);
typedef Function (*Lookup)(void *, const char *);

// The first fields of VkPhysicalDeviceProperties, and of its limits.
struct Properties {
    uint32_t api, driver, vendor, device, type;
    char name[256];
    uint8_t cache[16];
    uint64_t limits[0];
    uint32_t images[7], storage, constants;
};
struct Properties2 {
    uint32_t type;
    void *next;
    struct Properties properties;
};

static int has(const char *fault) {
    const char *faults = getenv("VULKAN_FAULTS");
    return faults && strstr(faults, fault);
}

static Lookup real_of_instance, real_of_device;
static int lost;

static int is_lost(void) {
    const char *path = getenv("VULKAN_LOSES");
    if (has("lost") || (path && unlink(path) == 0)) lost = 1;
    return lost;
}

static int (*real_create_instance)(const void *, const void *, void **);
static int create_instance(const void *info, const void *memory, void **instance) {
    return has("instance") ? INITIALIZATION_FAILED : real_create_instance(info, memory, instance);
}

static int (*real_create_device)(void *, const void *, const void *, void **);
static int create_device(void *physical, const void *info, const void *memory, void **device) {
    if (has("refuses")) return INITIALIZATION_FAILED;
    lost = 0;
    return real_create_device(physical, info, memory, device);
}

static void alter(struct Properties *properties) {
    if (has("discrete")) properties->type = DISCRETE;
    if (has("old")) properties->api = 1 << 22;
    if (has("few")) properties->constants = 64;
    if (has("small")) properties->storage = 4 << 20;
}

static void (*real_properties)(void *, struct Properties *);
static void properties(void *physical, struct Properties *out) {
    real_properties(physical, out);
    alter(out);
}

static void (*real_properties2)(void *, struct Properties2 *);
static void properties2(void *physical, struct Properties2 *out) {
    real_properties2(physical, out);
    alter(&out->properties);
}

static int (*real_extensions)(void *, const char *, uint32_t *, void *);
static int extensions(void *physical, const char *layer, uint32_t *count, void *out) {
    if (!has("old")) return real_extensions(physical, layer, count, out);
    *count = 0;
    return 0;
}

static void (*real_dispatch)(void *, uint32_t, uint32_t, uint32_t);
static void dispatch(void *commands, uint32_t x, uint32_t y, uint32_t z) {
    if (has("wrong") || (has("fast") && x == READ_BLOCKS)) return;
    real_dispatch(commands, x, y, z);
}

static int (*real_submit)(void *, uint32_t, const void *, void *);
static int submit(void *queue, uint32_t count, const void *submits, void *fence) {
    return is_lost() ? DEVICE_LOST : real_submit(queue, count, submits, fence);
}

static Function device_function(void *device, const char *name);

static const struct {
    const char *name;
    void *real, *ours;
} FUNCTIONS[] = {
    {"vkCreateInstance", &real_create_instance, create_instance},
    {"vkCreateDevice", &real_create_device, create_device},
    {"vkGetPhysicalDeviceProperties", &real_properties, properties},
    {"vkGetPhysicalDeviceProperties2", &real_properties2, properties2},
    {"vkGetPhysicalDeviceProperties2KHR", &real_properties2, properties2},
    {"vkEnumerateDeviceExtensionProperties", &real_extensions, extensions},
    {"vkGetDeviceProcAddr", &real_of_device, device_function},
    {"vkCmdDispatch", &real_dispatch, dispatch},
    {"vkQueueSubmit", &real_submit, submit},
};

// Ours in place of a function of the driver.
static Function replaced(const char *name, Function found) {
    for (size_t i = 0; found && i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++) {
        if (strcmp(name, FUNCTIONS[i].name) == 0) {
            *(Function *)FUNCTIONS[i].real = found;
            return (Function)FUNCTIONS[i].ours;
        }
    }
    return found;
}

static Function device_function(void *device, const char *name) {
    return replaced(name, real_of_device(device, name));
}

Function vkGetInstanceProcAddr(void *instance, const char *name) {
    static const char *const PATHS[] = {"/usr/lib/x86_64-linux-gnu/libvulkan.so.1", "/usr/lib/aarch64-linux-gnu/libvulkan.so.1",
                                        "/usr/lib64/libvulkan.so.1", "/usr/lib/libvulkan.so.1"};
    for (size_t i = 0; !real_of_instance && i < sizeof PATHS / sizeof *PATHS; i++) {
        void *loader = dlopen(PATHS[i], RTLD_NOW | RTLD_LOCAL);
        if (loader) real_of_instance = (Lookup)dlsym(loader, "vkGetInstanceProcAddr");
    }
    return real_of_instance ? replaced(name, real_of_instance(instance, name)) : NULL;
}
