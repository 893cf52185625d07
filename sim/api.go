package sim

import (
	"cmp"
	"encoding/binary"
	"reflect"
	"slices"
	"strings"
	"sync"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/memclnt"
	"go.fd.io/govpp/codec"
)

// call is one request in progress.
type call struct {
	*VPP
	c       *conn
	context uint32
}

// details queues one message of a multi-part answer.
func (q *call) details(m api.Message) {
	q.c.sendMessage(q.api.id(m, q.c.epoch), q.context, m)
}

// handler answers one kind of request.
type handler struct {
	name string
	// write: the request changes VPP's configuration.
	write bool
	fresh func() api.Message
	// answer is nil for a dump: its details have been sent, the client's control_ping ends it.
	answer func(q *call, req api.Message) api.Message
	// refusal returns a reply that has only this retval; nil for dumps.
	refusal func(retval int32) api.Message
	// fits reports whether a message really has the arrays that it announces. The sim must not allocate by a client's unverified
	// count.
	fits func(body []byte) bool
}

// apiTable is every message the sim knows. It is built once and never changes.
type apiTable struct {
	handlers map[string]*handler // by name_crc
	names    []string            // name_crc of all messages, sorted: requests, replies, details, events
	index    map[string]int      // into names
}

// messages builds the table. Adding a message is one line in the list of its file.
var messages = sync.OnceValue(func() *apiTable {
	t := &apiTable{handlers: map[string]*handler{}, index: map[string]int{}}
	systemMessages(t)
	interfaceMessages(t)
	createMessages(t)
	ipMessages(t)
	reassemblyMessages(t)
	nat44Messages(t)
	cnatMessages(t)
	aclMessages(t)
	l2Messages(t)
	mirrorMessages(t)
	probeMessages(t)
	abfMessages(t)
	policerMessages(t)
	puntMessages(t)
	classifyMessages(t)
	slices.Sort(t.names)
	t.names = slices.Compact(t.names)
	for i, n := range t.names {
		t.index[n] = i
	}
	return t
})

// questions are the names of requests that change nothing.
var questions = sync.OnceValue(func() map[string]bool {
	asks := map[string]bool{(&memclnt.SockclntCreate{}).GetMessageName(): true, (&memclnt.SockclntDelete{}).GetMessageName(): true}
	for _, h := range messages().handlers {
		if !h.write {
			asks[h.name] = true
		}
	}
	return asks
})

// Writes reports whether requests of that name, as in a binary API file, change VPP's configuration. A command line (cli_inband)
// does not, because the sim has no such commands. Names unknown to the sim, which belong to another version, count as writes unless
// they are dumps.
func Writes(name string) bool { return !questions()[name] && !strings.HasSuffix(name, "_dump") }

func nameCRC(m api.Message) string { return m.GetMessageName() + "_" + m.GetCrcString() }

// know lists a message that VPP only sends.
func (t *apiTable) know(m api.Message) { t.names = append(t.names, nameCRC(m)) }

// ids differ after each restart, and an id before a restart never names the same message after it.
func base(epoch int) int { return firstID + 41*(epoch%7) }

func (t *apiTable) shuffled(i, epoch int) int { return (i + 17*epoch) % len(t.names) }

func (t *apiTable) idOf(i, epoch int) uint16 { return uint16(base(epoch) + t.shuffled(i, epoch)) }

// id returns the id of a message to be sent.
func (t *apiTable) id(m api.Message, epoch int) uint16 { return t.idOf(t.index[nameCRC(m)], epoch) }

// handler returns the handler of a message id; nil: no such request.
func (t *apiTable) handler(id uint16, epoch int) *handler {
	i := int(id) - base(epoch)
	if i < 0 || i >= len(t.names) {
		return nil
	}
	n := len(t.names)
	return t.handlers[t.names[((i-17*epoch)%n+n)%n]]
}

// table returns the message table of the handshake.
func (t *apiTable) table(epoch int) []memclnt.MessageTableEntry {
	fixed := map[uint16]api.Message{
		sockclntCreate: &memclnt.SockclntCreate{}, sockclntCreateRepl: &memclnt.SockclntCreateReply{},
		sockclntDelete: &memclnt.SockclntDelete{}, sockclntDeleteRepl: &memclnt.SockclntDeleteReply{},
	}
	list := make([]memclnt.MessageTableEntry, 0, len(t.names)+len(fixed))
	for id, m := range fixed {
		list = append(list, memclnt.MessageTableEntry{Index: id, Name: nameCRC(m)})
	}
	for i, n := range t.names {
		list = append(list, memclnt.MessageTableEntry{Index: t.idOf(i, epoch), Name: n})
	}
	slices.SortFunc(list, func(a, b memclnt.MessageTableEntry) int { return cmp.Compare(a.Index, b.Index) })
	return list
}

// message is a pointer to a generated message struct.
type message[T any] interface {
	*T
	api.Message
}

// onWrite registers a request that changes configuration.
func onWrite[Q, R any, PQ message[Q], PR message[R]](t *apiTable, answer func(*call, PQ) PR) {
	on(t, true, answer)
}

// onRead registers a request that changes nothing.
func onRead[Q, R any, PQ message[Q], PR message[R]](t *apiTable, answer func(*call, PQ) PR) {
	on(t, false, answer)
}

func on[Q, R any, PQ message[Q], PR message[R]](t *apiTable, write bool, answer func(*call, PQ) PR) {
	var q PQ = new(Q)
	var r PR = new(R)
	t.handlers[nameCRC(q)] = &handler{
		name:   q.GetMessageName(),
		write:  write,
		fresh:  func() api.Message { return PQ(new(Q)) },
		answer: func(c *call, req api.Message) api.Message { return answer(c, req.(PQ)) },
		refusal: func(retval int32) api.Message {
			m := PR(new(R))
			setRetval(m, retval)
			return m
		},
	}
	t.know(q)
	t.know(r)
}

// onDump registers a request answered by any number of details.
func onDump[Q, D any, PQ message[Q], PD message[D]](t *apiTable, dump func(c *call, req PQ, send func(PD))) {
	var q PQ = new(Q)
	var d PD = new(D)
	t.handlers[nameCRC(q)] = &handler{
		name:  q.GetMessageName(),
		fresh: func() api.Message { return PQ(new(Q)) },
		answer: func(c *call, req api.Message) api.Message {
			dump(c, req.(PQ), func(m PD) { c.details(m) })
			return nil
		},
	}
	t.know(q)
	t.know(d)
}

// setRetval and getRetval access the field that every reply has.
func setRetval(m api.Message, retval int32) {
	if f := reflect.ValueOf(m).Elem().FieldByName("Retval"); f.IsValid() {
		f.SetInt(int64(retval))
	}
}

func getRetval(m api.Message) int32 {
	if f := reflect.ValueOf(m).Elem().FieldByName("Retval"); f.IsValid() {
		return int32(f.Int())
	}
	return 0
}

// handle answers one request and records it. The caller holds v.mu. An error ends the connection.
func (v *VPP) handle(c *conn, h *handler, body []byte) error {
	req := h.fresh()
	if h.fits != nil && !h.fits(body) || codec.DecodeMsg(body, req) != nil {
		return nil
	}
	q := &call{VPP: v, c: c, context: binary.BigEndian.Uint32(body[6:])}
	rec := v.record(h, req)
	rec.summarize(body)
	if v.fail != nil {
		retval, drop := v.fail(h.name)
		if drop {
			v.log.forgetLast(rec) // VPP never received it
			return errDown
		}
		if retval != 0 {
			rec.retval = retval
			if h.refusal != nil {
				q.details(h.refusal(retval))
			}
			return nil
		}
	}
	var reply api.Message
	if !v.survives(func() { reply = h.answer(q, req) }) {
		return errDown
	}
	if reply != nil {
		rec.retval = getRetval(reply)
		if h.write && v.after != nil && !v.show(c, rec) {
			return errDown
		}
		q.details(reply)
	}
	v.flushEvents()
	return nil
}

// show calls the onlooker after a request, and reports whether VPP and the connection survive that. The caller holds v.mu; show
// releases it for the call.
func (v *VPP) show(c *conn, r *record) bool {
	look, seen := v.after, r.public()
	func() {
		v.mu.Unlock()
		defer v.mu.Lock()
		look(seen)
	}()
	return v.crashed == nil && c.epoch == v.epoch
}
