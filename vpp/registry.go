package vpp

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/codec"
)

// registry holds the message types linked into the program.
type registry struct {
	byKey  map[string]reflect.Type // name_crc → struct type
	byName map[string][]string     // name → name_crcs
}

// preferred is the package tree whose types are used if several packages define a message.
const preferred = "go.fd.io/govpp/binapi"

func newRegistry() *registry {
	r := &registry{byKey: map[string]reflect.Type{}, byName: map[string][]string{}}
	for root, messages := range api.GetRegisteredMessages() {
		for key, m := range messages {
			if _, ok := r.byKey[key]; !ok {
				name := m.GetMessageName()
				r.byName[name] = append(r.byName[name], key)
			} else if root != preferred {
				continue
			}
			r.byKey[key] = reflect.TypeOf(m).Elem()
		}
	}
	return r
}

// kind is a kind of message that VPP sends or accepts, with its id on this connection.
type kind struct {
	key    string // name_crc
	name   string
	id     uint16
	typ    reflect.Type // struct type; nil: not linked in
	event  bool         // its header has no context
	retval int          // index of the field Retval, -1: none
	cursor int          // index of the field Cursor, -1: none
	count  counted      // the array at the message's end
}

// counted describes a message whose last field is an array, preceded by the array's length, as in nearly all messages with
// an array.
type counted struct {
	at, width int // position and size of the length in the body without header; width 0: no such array
}

// countOf finds the length of the array at the end of m, whose array is empty.
func countOf(m api.Message) (c counted) {
	t := reflect.TypeOf(m).Elem()
	sized, ok := m.(codec.Marshaler)
	n := t.NumField()
	if !ok || n < 2 || t.Field(n-1).Type.Kind() != reflect.Slice {
		return c
	}
	switch count := t.Field(n - 2).Type; count.Kind() {
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		c.width = int(count.Size())
		c.at = sized.Size() - c.width
	}
	return c
}

// checkLength refuses a length greater than the number of bytes that follow: the generated code would allocate that many elements
// first.
func (c counted) checkLength(body []byte) error {
	if c.width == 0 || len(body) < c.at+c.width {
		return nil // the decoder reports a short body
	}
	n := uint64(0)
	for _, b := range body[c.at : c.at+c.width] {
		n = n<<8 | uint64(b)
	}
	if rest := len(body) - c.at - c.width; n > uint64(rest) {
		return fmt.Errorf("%d elements in %d bytes", n, rest)
	}
	return nil
}

func (k *kind) new() api.Message { return reflect.New(k.typ).Interface().(api.Message) }

// route describes how a request is sent and answered on this connection.
type route struct {
	name    string
	id      uint16
	reply   *kind // nil: a dump, ended by control_ping
	details *kind // nil: the request has none
	odd     *kind // the reply that VPP sends under another name, in the layout of reply
	cursor  int   // index of the request's field Cursor, -1: none
	missing *MissingError
}

// oddReply returns the message under whose id VPP answers a request, in the layout of the proper reply; "": its own.
func oddReply(request string) string {
	switch request {
	case "acl_stats_intf_counters_enable":
		return "acl_del_reply" // acl.c: REPLY_MACRO with the wrong id, VPP 24.06 … 25.10
	}
	return ""
}

// messages binds the registry to the ids of one connection.
type messages struct {
	registry *registry
	table    map[string]uint16
	byID     []*kind
	byKey    map[string]*kind
	ping     *kind // control_ping
	pong     *kind // control_ping_reply
	routes   map[reflect.Type]*route
}

func (r *registry) bind(table map[string]uint16) *messages {
	m := &messages{registry: r, table: table, byKey: make(map[string]*kind, len(table)), routes: map[reflect.Type]*route{}}
	for key, id := range table {
		k := r.kind(key, id)
		m.byKey[key] = k
		for int(id) >= len(m.byID) {
			m.byID = append(m.byID, make([]*kind, int(id)+1-len(m.byID))...)
		}
		m.byID[id] = k
	}
	m.ping, m.pong = m.named("control_ping"), m.named("control_ping_reply")
	return m
}

func (r *registry) kind(key string, id uint16) *kind {
	k := &kind{key: key, name: key, id: id, typ: r.byKey[key], retval: -1, cursor: -1}
	if at := strings.LastIndexByte(key, '_'); at > 0 {
		k.name = key[:at]
	}
	if k.typ == nil {
		return k
	}
	k.retval, k.cursor = field(k.typ, "Retval", reflect.Int32), field(k.typ, "Cursor", reflect.Uint32)
	k.count = countOf(k.new())
	switch k.new().GetMessageType() {
	case api.EventMessage, api.OtherMessage:
		k.event = true
	}
	return k
}

func field(t reflect.Type, name string, want reflect.Kind) int {
	if f, ok := t.FieldByName(name); ok && f.Type.Kind() == want && len(f.Index) == 1 {
		return f.Index[0]
	}
	return -1
}

func (m *messages) kindAt(id uint16) *kind {
	if int(id) < len(m.byID) {
		return m.byID[id]
	}
	return nil
}

// named returns a message that has a linked type, and that VPP has with the same CRC; nil: none.
func (m *messages) named(name string) *kind {
	for _, key := range m.registry.byName[name] {
		if k := m.byKey[key]; k != nil && k.typ != nil {
			return k
		}
	}
	return nil
}

// route finds and caches the route of msg. The caller holds the session's lock.
func (m *messages) route(msg api.Message) *route {
	t := reflect.TypeOf(msg)
	if r := m.routes[t]; r != nil {
		return r
	}
	r := m.findRoute(msg, t)
	m.routes[t] = r
	return r
}

func (m *messages) findRoute(msg api.Message, t reflect.Type) *route {
	name := msg.GetMessageName()
	key := name + "_" + msg.GetCrcString()
	r := &route{name: name, cursor: -1}
	if t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct {
		r.cursor = field(t.Elem(), "Cursor", reflect.Uint32)
	}
	id, ok := m.table[key]
	if !ok {
		r.missing = &MissingError{Message: name, Lacks: key}
		return r
	}
	r.id = id
	details := strings.TrimSuffix(strings.TrimSuffix(name, "_dump"), "_get") + "_details"
	dump := len(m.registry.byName[name+"_reply"]) == 0
	if dump || strings.HasSuffix(name, "_get") {
		r.details = m.named(details)
	}
	if dump {
		if r.details == nil || m.pong == nil {
			r.missing = &MissingError{Message: name, Lacks: m.lacking(details)}
		}
		return r
	}
	if r.reply = m.named(name + "_reply"); r.reply == nil {
		r.missing = &MissingError{Message: name, Lacks: m.lacking(name + "_reply")}
	} else if len(m.registry.byName[details]) > 0 && strings.HasSuffix(name, "_get") && r.details == nil {
		r.missing = &MissingError{Message: name, Lacks: m.lacking(details)}
	}
	if odd := oddReply(name); odd != "" {
		r.odd = m.oddKind(odd)
	}
	return r
}

// oddKind finds a message by name alone: its own layout does not matter.
func (m *messages) oddKind(name string) *kind {
	for _, k := range m.byID {
		if k != nil && k.name == name {
			return k
		}
	}
	return nil
}

// lacking returns the name_crc of a message that VPP should have.
func (m *messages) lacking(name string) string {
	if keys := m.registry.byName[name]; len(keys) > 0 {
		return keys[0]
	}
	return name
}

// missing returns which of needs VPP lacks, sorted, without duplicates.
func (m *messages) missing(needs []api.Message) []string {
	var out []string
	for _, msg := range needs {
		if r := m.findRoute(msg, reflect.TypeOf(msg)); r.missing != nil {
			out = append(out, r.missing.Lacks)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (m *messages) describe(id uint16) string {
	if k := m.kindAt(id); k != nil {
		return k.key
	}
	return "message " + strconv.Itoa(int(id))
}
