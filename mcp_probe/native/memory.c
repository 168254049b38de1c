/* Memory per request: hooks in Python's allocator, and what they have counted. A module of its own,
 * which may be absent.
 *
 * It meets _core at one capsule of functions: whose step a thread runs now, and which request has
 * ended. Everything that is called through it runs under the GIL; the hooks themselves say where
 * they do.
 */
#include "base.h"
#include "request.h"
#include "account.h"
#include "blocks.h"
#include "interpreters.h"
#include "small.h"
#include "slab.h"
#include "allocator.h"
#include "measure.h"

static PyMethodDef memory_methods[] = {
    {"install", memory_py_install, METH_O,
     "Hook Python's allocator: \"gross\", \"hybrid\" or \"shadow\"."},
    {"uninstall", memory_py_uninstall, METH_NOARGS, "Take the hooks out."},
    {"state", memory_py_state, METH_NOARGS,
     "What the hooks are, and whether what they counted is valid."},
    {"blocks", memory_py_blocks, METH_VARARGS,
     "[(address, size, index of its request), ...] that these hold, at most so many."},
    {"charge", memory_charge, METH_O,
     "What this thread allocates belongs to the request from now on; returns the one before."},
    {NULL}};
static struct PyModuleDef memory_module = {PyModuleDef_HEAD_INIT, "mcp_probe.native._memory", NULL,
                                           -1, memory_methods};

PyMODINIT_FUNC PyInit__memory(void)
{
    static const memory_hooks_t hooks = {memory_begin,  memory_close, memory_end,   drop_account,
                                         memory_use_of, memory_move,  &memory_epoch};
    PyObject *core = PyImport_ImportModule("mcp_probe.native._core"), *module = NULL,
             *capsule = PyCapsule_New((void *)&hooks, MEMORY_CAPSULE, NULL);
    if (core != NULL && capsule != NULL)
        request_type = (PyTypeObject *)PyObject_GetAttrString(core, "Request");
    if (request_type != NULL && PyType_Check((PyObject *)request_type))
        module = PyModule_Create(&memory_module);
    if (module != NULL && PyModule_AddObjectRef(module, "hooks", capsule) < 0)
        Py_CLEAR(module);
    Py_XDECREF(core);
    Py_XDECREF(capsule);
    return module;
}
