/* ---- a request in memory, as both modules know it ---- */

typedef struct {
    ns_t unit, suspended, earliest, ready, start, end;
    int wake;
} mark_t;

typedef struct {
    ns_t unit, end;
} unit_t;

typedef unsigned long long account_ref; /* account.h: whose blocks; 0: nobody's */

/* What the module _memory keeps in a request. */
typedef struct {
    ns_t requested, allocations, owned;
    account_ref account;
    unsigned int epoch; /* of the hooks that were installed as it began; 0: none were */
    char charged, sealed;
} memory_t;

typedef struct {
    PyObject_HEAD
    PyObject *request_id, *session, *channel, *parent, *jobs, *pauses, *client_waits, *awaits,
        *looks, *metered, *measured, *ambient, *lend_span, *spilled; /* may hold others */
    PyObject *id, *kind, *method, *name, *transport, *protocol_version, *outcome, *error, *trace_id,
        *span_id, *parent_span_id, *trace_flags, *trace_state, *server_span, *resource_uri,
        *session_id, *error_code, *starved, *write_waits, *sized; /* numbers and text */
    ns_t arrival_ns, arrival_earliest_ns, taken_ns, first_step_ns, result_ns, write_taken_ns,
        flushed_ns, end_ns, gone_ns, sent_ns, decode_ns, encode_ns, request_bytes, response_bytes,
        loop; /* NO_NS: not known */
    ns_t handler, detached_ns, blocked_others_ns;
    PyObject *weak_references;
    memory_t memory;
    int seen; /* what hooks saw of it, bits of model.py; ALL_SEEN until they say otherwise */
    char settles, ended, transport_seen, new_connection, write_seen, partial, seen_open;
    int mark_count, mark_room, unit_count, unit_room,
        unit_peak; /* unit_peak: alive at once at most */
    mark_t *marks, own_marks[6];
    unit_t *units, own_units[4];
} Request;

#define ALL_SEEN 15
#define FIRST_OBJECT offsetof(Request, request_id)
#define LAST_CONTAINER offsetof(Request, spilled)
#define LAST_OBJECT offsetof(Request, sized)
#define FIRST_NS offsetof(Request, arrival_ns)
#define LAST_NS offsetof(Request, loop)

static PyTypeObject *request_type; /* of _core's */

static inline Request *as_request(PyObject *owner)
{
    return owner != NULL && owner != Py_None && PyObject_TypeCheck(owner, request_type)
               ? (Request *)owner
               : NULL;
}

/* What the module _memory does for this one: handed over in a capsule. It may be absent. */
typedef struct {
    void (*begin)(Request *request); /* this thread works for it from now on; NULL: for nobody */
    void (*close)(void);
    void (*end)(Request *request); /* told just before `ended` is set */
    void (*drop)(account_ref account);
    PyObject *(*use_of)(Request *request);
    void (*move)(Request *from,
                 Request *to); /* what the first one holds is the second one's from now on */
    const unsigned int *epoch;
} memory_hooks_t;
#define MEMORY_CAPSULE "mcp_probe.native._memory.hooks"
