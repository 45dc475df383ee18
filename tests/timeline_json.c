/* What examples/timeline.c writes, read back: JSON, Chrome trace, XML.
 *
 *     timeline_json                 proves the readers on texts made here
 *     timeline_json json|trace|xml FILE   judges a file; one line says what is wrong
 */
#include "check.h"

#include <inttypes.h>
#include <stdarg.h>

/* --- JSON ------------------------------------------------------------------------------------ */

typedef enum json_kind { JSON_WORD, JSON_NUMBER, JSON_STRING, JSON_ARRAY, JSON_OBJECT } json_kind;

enum { JSON_DEPTH = 32, JSON_TEXT = 48 };

/* A value; the members of an object or array follow it, size counts it and all below it. */
typedef struct json {
    json_kind kind;
    size_t size;
    double number;
    char key[32];         /* in an object */
    char text[JSON_TEXT]; /* of a string or word, cut */
} json;

typedef struct reader {
    const char *text, *at;
    json *values;
    size_t n_values, room;
    uint32_t depth;
    bool parsed;
    char why[160]; /* "" as long as all is well */
} reader;

#ifdef __GNUC__
#define PRINTS __attribute__((format(printf, 2, 3)))
#else
#define PRINTS
#endif

static bool wrong(reader *r, const char *format, ...) PRINTS;
static bool wrong(reader *r, const char *format, ...)
{
    va_list args;
    if (r->why[0] != 0) return false;
    va_start(args, format);
    size_t n = 0;
    if (!r->parsed)
        n = (size_t)snprintf(r->why, sizeof r->why, "byte %zu: ", (size_t)(r->at - r->text));
    vsnprintf(r->why + n, sizeof r->why - n, format, args);
    va_end(args);
    return false;
}

static void json_space(reader *r)
{
    while (*r->at == ' ' || *r->at == '\n' || *r->at == '\r' || *r->at == '\t')
        r->at++;
}

static bool json_hex(const char *at)
{
    for (int i = 0; i < 4; i++)
        if (!((at[i] >= '0' && at[i] <= '9') || (at[i] >= 'a' && at[i] <= 'f') ||
              (at[i] >= 'A' && at[i] <= 'F')))
            return false;
    return true;
}

/* A quoted text; what does not fit is cut, escapes stay as they are. */
static bool json_string(reader *r, char *text, size_t size)
{
    size_t n = 0;
    if (*r->at++ != '"') return wrong(r, "a \" expected");
    for (; *r->at != '"'; r->at++) {
        if ((unsigned char)*r->at < ' ') return wrong(r, "a control character in a string");
        if (n + 1 < size) text[n++] = *r->at;
        if (*r->at != '\\') continue;
        r->at++;
        if (*r->at == 0 || strchr("\"\\/bfnrtu", *r->at) == NULL) return wrong(r, "wrong escape");
        if (*r->at == 'u' && !json_hex(r->at + 1)) return wrong(r, "wrong \\u");
        if (n + 1 < size) text[n++] = *r->at;
    }
    r->at++;
    text[n] = 0;
    return true;
}

/* -1, 0.5, 1e9; not 01, .5, 1. or +1. */
static bool json_number(reader *r, double *number)
{
    const char *start = r->at;
    size_t n = *start == '-' ? 1u : 0u;
    if (start[n] == '0' && start[n + 1] >= '0' && start[n + 1] <= '9')
        return wrong(r, "wrong number");
    size_t digits = strspn(start + n, "0123456789");
    if (digits == 0) return wrong(r, "no value");
    n += digits;
    if (start[n] == '.') {
        digits = strspn(start + n + 1, "0123456789");
        if (digits == 0) return wrong(r, "wrong number");
        n += 1 + digits;
    }
    if (start[n] == 'e' || start[n] == 'E') {
        n += start[n + 1] == '-' || start[n + 1] == '+' ? 2u : 1u;
        digits = strspn(start + n, "0123456789");
        if (digits == 0) return wrong(r, "wrong number");
        n += digits;
    }
    *number = strtod(start, NULL);
    r->at += n;
    return true;
}

static bool json_word(reader *r, char *text)
{
    static const char *const words[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if (strncmp(r->at, words[i], n) != 0) continue;
        memcpy(text, words[i], n + 1);
        r->at += n;
        return true;
    }
    return wrong(r, "no value");
}

static json *json_new(reader *r)
{
    if (r->n_values == r->room) {
        r->room = r->room > 0 ? 2 * r->room : 1024;
        r->values = (json *)realloc(r->values, r->room * sizeof *r->values);
        if (r->values == NULL) exit(1);
    }
    memset(&r->values[r->n_values], 0, sizeof *r->values);
    return &r->values[r->n_values++];
}

static bool json_value(reader *r, const char *key);

static bool json_members(reader *r, bool object)
{
    char close = object ? '}' : ']';
    r->at++;
    json_space(r);
    if (*r->at == close) return r->at++, true;
    for (;;) {
        char key[32] = "";
        json_space(r);
        if (object && !json_string(r, key, sizeof key)) return false;
        json_space(r);
        if (object && *r->at++ != ':') return wrong(r, "a : expected");
        if (!json_value(r, key)) return false;
        json_space(r);
        if (*r->at == close) return r->at++, true;
        if (*r->at++ != ',') return wrong(r, "a , or %c expected", close);
    }
}

static bool json_value(reader *r, const char *key)
{
    size_t self = r->n_values;
    json *v = json_new(r);
    bool ok;
    memcpy(v->key, key, strlen(key) + 1);
    json_space(r);
    if (*r->at == '{' || *r->at == '[') {
        v->kind = *r->at == '{' ? JSON_OBJECT : JSON_ARRAY;
        if (++r->depth > JSON_DEPTH) return wrong(r, "nested too deep");
        ok = json_members(r, *r->at == '{');
        r->depth--;
    } else if (*r->at == '"') {
        v->kind = JSON_STRING;
        ok = json_string(r, v->text, sizeof v->text);
    } else if (*r->at >= 'a' && *r->at <= 'z') {
        v->kind = JSON_WORD;
        ok = json_word(r, v->text);
    } else {
        v->kind = JSON_NUMBER;
        ok = json_number(r, &v->number);
    }
    r->values[self].size = r->n_values - self;
    return ok;
}

/* A whole text; its values are r->values, the outermost first. */
static bool json_read(reader *r, const char *text)
{
    memset(r, 0, sizeof *r);
    r->text = r->at = text;
    if (!json_value(r, "")) return false;
    json_space(r);
    r->parsed = *r->at == 0;
    return r->parsed || wrong(r, "something after the value");
}

/* Member of an object, NULL if there is none of that kind. */
static const json *json_get(const json *object, const char *key, json_kind kind)
{
    if (object == NULL || object->kind != JSON_OBJECT) return NULL;
    for (size_t i = 1; i < object->size; i += object[i].size)
        if (strcmp(object[i].key, key) == 0) return object[i].kind == kind ? &object[i] : NULL;
    return NULL;
}

/* --- Chrome trace ---------------------------------------------------------------------------- */

enum { TRACKS = 64 * 72, SPENT = 32 };

/* What the events of one track came to so far. */
typedef struct track {
    uint64_t pid, tid;
    char name[JSON_TEXT];
    uint64_t end_ck;
    bool named, used;
} track;

typedef struct trace {
    track tracks[TRACKS];
    size_t n_tracks;
    const json *other, *breakdown; /* otherData, and its breakdown_ck */
    double tCK_us;
    uint64_t critical;
    uint64_t spent_ck[SPENT]; /* of the critical channel, in the order of breakdown_ck */
    bool shown;               /* the critical channel is in the trace */
    uint64_t n_commands;
} trace;

static track *trace_track(trace *t, uint64_t pid, uint64_t tid)
{
    for (size_t i = 0; i < t->n_tracks; i++)
        if (t->tracks[i].pid == pid && t->tracks[i].tid == tid) return &t->tracks[i];
    if (t->n_tracks == TRACKS) return NULL;
    track *found = &t->tracks[t->n_tracks++];
    found->pid = pid;
    found->tid = tid;
    return found;
}

/* A member that is a whole number; UINT64_MAX if it is not. */
static uint64_t whole(const json *object, const char *key)
{
    const json *v = json_get(object, key, JSON_NUMBER);
    if (v == NULL || v->number < 0 || v->number != floor(v->number)) return UINT64_MAX;
    return (uint64_t)v->number;
}

/* Of the clocks of the critical channel: which category they went to. */
static bool trace_spent(reader *r, trace *t, const json *event, const char *name)
{
    size_t n = 0;
    for (size_t i = 1; i < t->breakdown->size; i++, n++) {
        if (strcmp(t->breakdown[i].key, name) != 0) continue;
        t->spent_ck[n] += whole(json_get(event, "args", JSON_OBJECT), "clocks");
        return true;
    }
    return wrong(r, "%s is no category of breakdown_ck", name);
}

/* An X event: times that are its clocks, on a track with a name, after the one before. */
static bool trace_complete(reader *r, trace *t, track *on, const json *event, const char *name)
{
    const json *ts = json_get(event, "ts", JSON_NUMBER), *dur = json_get(event, "dur", JSON_NUMBER);
    const json *args = json_get(event, "args", JSON_OBJECT);
    uint64_t clock = whole(args, "clock"), clocks = whole(args, "clocks");
    if (ts == NULL || dur == NULL || clock == UINT64_MAX || clocks == UINT64_MAX)
        return wrong(r, "%s without ts, dur, clock or clocks", name);
    if (fabs(ts->number - (double)clock * t->tCK_us) > 5e-7 ||
        fabs(dur->number - (double)clocks * t->tCK_us) > 5e-7)
        return wrong(r, "%s at clock %" PRIu64 ": ts or dur is another time", name, clock);
    if (!on->named) return wrong(r, "%s on a track without a name", name);
    if (clock < on->end_ck)
        return wrong(r, "%s at clock %" PRIu64 " overlaps the one before on %s", name, clock,
                     on->name);
    on->end_ck = clock + clocks;
    on->used = true;
    if (strcmp(on->name, "clocks spent") != 0) {
        t->n_commands++;
        if (json_get(args, "reason", JSON_STRING) && whole(args, "waited") != UINT64_MAX)
            return true;
        return wrong(r, "%s at clock %" PRIu64 " without reason or waited", name, clock);
    }
    if (on->pid != t->critical + 1) return true;
    t->shown = true;
    return trace_spent(r, t, event, name);
}

static bool trace_event(reader *r, trace *t, const json *event)
{
    const json *phase = json_get(event, "ph", JSON_STRING);
    const json *name = json_get(event, "name", JSON_STRING);
    uint64_t pid = whole(event, "pid"), tid = whole(event, "tid");
    if (phase == NULL || name == NULL || pid == UINT64_MAX || tid == UINT64_MAX || !pid || !tid)
        return wrong(r, "an event without ph, name, pid or tid");
    track *on = trace_track(t, pid, tid);
    if (on == NULL) return wrong(r, "too many tracks");
    if (strcmp(phase->text, "X") == 0) return trace_complete(r, t, on, event, name->text);
    if (strcmp(phase->text, "M") != 0) return wrong(r, "phase %s", phase->text);
    if (strcmp(name->text, "thread_name") != 0) return true;
    const json *text = json_get(json_get(event, "args", JSON_OBJECT), "name", JSON_STRING);
    if (text == NULL) return wrong(r, "thread_name without a name");
    memcpy(on->name, text->text, sizeof on->name);
    on->named = true;
    return true;
}

/* The track of spent clocks says what breakdown_ck says, and all of it is the time. */
static bool trace_sums(reader *r, const trace *t)
{
    uint64_t sum = 0;
    for (size_t i = 1, n = 0; i < t->breakdown->size; i++, n++) {
        uint64_t ck = whole(t->breakdown, t->breakdown[i].key);
        sum += ck;
        if (t->shown && ck != t->spent_ck[n])
            return wrong(r, "%s: %" PRIu64 " clocks on the track, breakdown_ck says %" PRIu64,
                         t->breakdown[i].key, t->spent_ck[n], ck);
    }
    if (sum == whole(t->other, "cycles")) return true;
    return wrong(r, "breakdown_ck sums to %" PRIu64 ", not to the cycles", sum);
}

static bool trace_judge(reader *r, trace *t, const char *text)
{
    static const char *const wanted[] = {"schema", "tCK_ps", "cycles", "critical_channel"};
    memset(t, 0, sizeof *t);
    if (!json_read(r, text)) return false;
    const json *events = json_get(r->values, "traceEvents", JSON_ARRAY);
    t->other = json_get(r->values, "otherData", JSON_OBJECT);
    t->breakdown = json_get(t->other, "breakdown_ck", JSON_OBJECT);
    if (events == NULL || t->breakdown == NULL || t->breakdown->size > SPENT)
        return wrong(r, "no traceEvents, or otherData without breakdown_ck");
    for (int i = 0; i < 4; i++)
        if (whole(t->other, wanted[i]) == UINT64_MAX) return wrong(r, "no %s", wanted[i]);
    if (!json_get(t->other, "program", JSON_STRING) || !json_get(t->other, "device", JSON_STRING) ||
        !json_get(t->other, "controller", JSON_STRING))
        return wrong(r, "no program, device or controller");
    t->tCK_us = (double)whole(t->other, "tCK_ps") * 1e-6;
    t->critical = whole(t->other, "critical_channel");
    for (size_t i = 1; i < events->size; i += events[i].size)
        if (!trace_event(r, t, &events[i])) return false;
    for (size_t i = 0; i < t->n_tracks; i++)
        if (t->tracks[i].named && !t->tracks[i].used)
            return wrong(r, "nothing on track %s", t->tracks[i].name);
    return trace_sums(r, t);
}

/* --- XML ------------------------------------------------------------------------------------- */

static bool name_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_' || c == ':' || c == '.';
}

static size_t name_length(const char *at)
{
    size_t n = 0;
    while (name_letter(at[n]))
        n++;
    return n;
}

/* &lt; and its like, or &#60; */
static bool xml_entity(reader *r)
{
    static const char *const names[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&apos;"};
    for (int i = 0; i < 5; i++)
        if (strncmp(r->at, names[i], strlen(names[i])) == 0) return true;
    size_t n = r->at[1] == '#' ? strspn(r->at + 2, "0123456789") : 0;
    return (n > 0 && r->at[2 + n] == ';') || wrong(r, "an & that begins no entity");
}

/* name="value" .. up to the end of a tag. */
static bool xml_attributes(reader *r)
{
    char seen[512] = " ";
    for (;;) {
        size_t space = strspn(r->at, " \n\t");
        r->at += space;
        size_t n = name_length(r->at);
        if (n == 0) return true;
        char name[40];
        snprintf(name, sizeof name, " %.*s ", (int)(n < 32 ? n : 32), r->at);
        if (space == 0) return wrong(r, "no space before an attribute");
        if (strstr(seen, name) != NULL) return wrong(r, "the attribute%scomes twice", name);
        if (strlen(seen) + strlen(name) < sizeof seen) strcat(seen, name + 1);
        r->at += n;
        if (r->at[0] != '=' || r->at[1] != '"') return wrong(r, "=\" expected");
        for (r->at += 2; *r->at != '"'; r->at++) {
            if (*r->at == 0 || *r->at == '<') return wrong(r, "a value that does not end");
            if (*r->at == '&' && !xml_entity(r)) return false;
        }
        r->at++;
    }
}

/* One element with all in it; r->at is behind its <. */
static bool xml_element(reader *r)
{
    const char *name = r->at;
    size_t n = name_length(name);
    if (n == 0) return wrong(r, "a < that begins no element");
    if (++r->depth > JSON_DEPTH) return wrong(r, "nested too deep");
    r->at += n;
    if (!xml_attributes(r)) return false;
    if (r->at[0] == '/' && r->at[1] == '>') return r->depth--, r->at += 2, true;
    if (*r->at++ != '>') return wrong(r, "a tag that does not end");
    for (;;) {
        if (*r->at == 0) return wrong(r, "<%.*s> that does not end", (int)n, name);
        if (*r->at == '&' && !xml_entity(r)) return false;
        if (*r->at++ != '<') continue;
        if (*r->at != '/') {
            if (!xml_element(r)) return false;
            continue;
        }
        bool same = strncmp(r->at + 1, name, n) == 0 && r->at[1 + n] == '>';
        if (!same) return wrong(r, "<%.*s> is ended by another", (int)n, name);
        r->at += n + 2;
        r->depth--;
        return true;
    }
}

static bool xml_judge(reader *r, const char *text)
{
    memset(r, 0, sizeof *r);
    r->text = r->at = text;
    if (*r->at++ != '<') return wrong(r, "a < expected");
    if (!xml_element(r)) return false;
    r->at += strspn(r->at, " \n\t");
    return *r->at == 0 || wrong(r, "something after the element");
}

/* --- The readers themselves ------------------------------------------------------------------ */

static bool reads(const char *text)
{
    reader r;
    bool ok = json_read(&r, text);
    free(r.values);
    return ok;
}

static void json_is_told_from_what_is_not(void)
{
    static const char *const good[] = {"0",
                                       "-1.5e-3",
                                       "[]",
                                       "{}",
                                       " [1, 2,3 ] ",
                                       "{\"a\": {\"b\": [true, null]}}",
                                       "\"\\u12aF\\n\"",
                                       "\"\"",
                                       "[[[[]]]]"};
    static const char *const bad[] = {
        "",          "01",    "1.",        ".5",       "+1",         "1e",       "[1,]",
        "[1 2]",     "{1:2}", "{\"a\" 1}", "{\"a\":}", "{\"a\":1,}", "\"a",      "\"\\x\"",
        "\"\\u12\"", "tru",   "[1",        "1 2",      "[}",         "\"a\nb\"", "nul"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(reads(good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!reads(bad[i]));
}

/* A trace of one track of commands and one of spent clocks, the events in the middle. */
static bool judged(const char *commands, const char *spent)
{
    static trace t;
    char text[2048];
    reader r;
    snprintf(text, sizeof text,
             "{\"otherData\": {\"schema\": 1, \"program\": \"p\", \"device\": \"d\", "
             "\"controller\": \"dcs\", \"tCK_ps\": 500, \"cycles\": 6, \"critical_channel\": 0, "
             "\"breakdown_ck\": {\"MAC\": 4, \"drain\": 2}}, \"traceEvents\": ["
             "{\"ph\": \"M\", \"pid\": 1, \"tid\": 1, \"name\": \"thread_name\", "
             "\"args\": {\"name\": \"units\"}},"
             "{\"ph\": \"M\", \"pid\": 1, \"tid\": 2, \"name\": \"thread_name\", "
             "\"args\": {\"name\": \"clocks spent\"}}%s%s]}",
             commands, spent);
    bool ok = trace_judge(&r, &t, text);
    free(r.values);
    return ok;
}

#define EVENT(tid, name, ts, dur, args)                                                            \
    ",{\"ph\": \"X\", \"pid\": 1, \"tid\": " tid ", \"name\": \"" name "\", \"ts\": " ts           \
    ", \"dur\": " dur ", \"args\": {" args "}}"
#define WHY ", \"reason\": \"r\", \"waited\": 0"

static void traces_overlap_or_not(void)
{
    const char *first =
        EVENT("1", "MAC", "0.000000", "0.001000", "\"clock\": 0, \"clocks\": 2" WHY);
    const char *next = EVENT("1", "MAC", "0.001000", "0.001000", "\"clock\": 2, \"clocks\": 2" WHY);
    const char *over = EVENT("1", "MAC", "0.000500", "0.001000", "\"clock\": 1, \"clocks\": 2" WHY);
    const char *late = EVENT("1", "MAC", "0.002000", "0.001000", "\"clock\": 2, \"clocks\": 2" WHY);
    const char *mute = EVENT("1", "MAC", "0.001000", "0.001000", "\"clock\": 2, \"clocks\": 2");
    const char *lost = EVENT("3", "MAC", "0.001000", "0.001000", "\"clock\": 2, \"clocks\": 2" WHY);
    const char *spent = EVENT("2", "MAC", "0", "0.002", "\"clock\": 0, \"clocks\": 4")
        EVENT("2", "drain", "0.002", "0.001", "\"clock\": 4, \"clocks\": 2");
    const char *less = EVENT("2", "MAC", "0", "0.002", "\"clock\": 0, \"clocks\": 4");
    const char *other = EVENT("2", "mac", "0", "0.002", "\"clock\": 0, \"clocks\": 4");
    const char *const bad[] = {over, late, mute, lost, "", ",1", ",{}"};
    char both[1024];
    snprintf(both, sizeof both, "%s%s", first, next);
    CHECK(judged(both, spent));
    CHECK(!judged(both, less));
    CHECK(!judged(both, other));
    CHECK(!judged(both, ""));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(both, sizeof both, "%s%s", *bad[i] ? first : "", bad[i]);
        CHECK(!judged(both, spent));
    }
}

static void xml_is_told_from_what_is_not(void)
{
    static const char *const good[] = {"<a/>", "<a></a>\n", "<a b=\"1\" c=\"&lt;\">x &amp; y</a>",
                                       "<a><b/>t<c d=\"e\"/></a>", "<a>&#60;</a>"};
    static const char *const bad[] = {"",
                                      "a",
                                      "<a>",
                                      "<a></b>",
                                      "<a b=1/>",
                                      "<a b/>",
                                      "<a b=\"1\"",
                                      "<a>&nbsp;</a>",
                                      "<a/><b/>",
                                      "<a>< </a>",
                                      "<a b=\"<\"/>",
                                      "<a><b></a></b>",
                                      "<a>x & y</a>",
                                      "<a b=\"1\" b=\"2\"/>",
                                      "<a b=\"1\"c=\"2\"/>"};
    reader r;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        CHECK(xml_judge(&r, good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        CHECK(!xml_judge(&r, bad[i]));
}

/* --- Files ----------------------------------------------------------------------------------- */

/* The whole text of a file, a 0 behind it; NULL if it cannot be read or holds a 0. */
static char *text_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    size_t room = 1u << 16, n = 0, got;
    char *text = (char *)check_alloc(room, 1);
    if (file == NULL) return free(text), NULL;
    while ((got = fread(text + n, 1, room - n - 1, file)) > 0) {
        n += got;
        if (n < room - 1) continue;
        room *= 2;
        text = (char *)realloc(text, room);
        if (text == NULL) exit(1);
    }
    fclose(file);
    text[n] = 0;
    if (strlen(text) == n) return text;
    return free(text), NULL;
}

static int judge_file(const char *what, const char *path)
{
    static trace t;
    reader r;
    char *text = text_of(path);
    bool ok = false;
    memset(&r, 0, sizeof r);
    if (text == NULL)
        snprintf(r.why, sizeof r.why, "cannot be read as text");
    else if (strcmp(what, "json") == 0)
        ok = json_read(&r, text);
    else if (strcmp(what, "trace") == 0)
        ok = trace_judge(&r, &t, text);
    else if (strcmp(what, "xml") == 0)
        ok = xml_judge(&r, text);
    else
        snprintf(r.why, sizeof r.why, "json, trace or xml, not %s", what);
    if (!ok) printf("%s: %s\n", path, r.why);
    if (ok && strcmp(what, "trace") == 0) printf("%" PRIu64 " commands\n", t.n_commands);
    free(r.values);
    free(text);
    return ok ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc == 3) return judge_file(argv[1], argv[2]);
    RUN(json_is_told_from_what_is_not);
    RUN(traces_overlap_or_not);
    RUN(xml_is_told_from_what_is_not);
    return check_end();
}
