package sim

import (
	"fmt"

	"go.fd.io/govpp/api"

	"github.com/contiv-agent/contiv-agent/sim/indices"
	"github.com/contiv-agent/contiv-agent/vpp/describe"
)

// Record is one request the VPP processed.
type Record struct {
	Seq  int // counts from 1 and survives ClearLog
	Name string
	// Text is the message with its fields that are not zero, in the order of the message; interfaces by name.
	Text   string
	Write  bool // the request changes configuration
	Retval int32
}

// String is the text, with the retval where it is not zero.
func (r Record) String() string {
	if r.Retval == 0 {
		return r.Text
	}
	return fmt.Sprintf("%s => %d", r.Text, r.Retval)
}

// record keeps the message itself. The text is made on request, because most records are never read.
type record struct {
	seq    int
	h      *handler
	req    api.Message
	names  map[uint32]string
	acls   map[uint32]string // tags by index
	rules  int               // number and hash of an ACL message's rules, which may be too many to keep
	sum    uint32
	retval int32
}

type requestLog struct {
	limit  int
	seq    int
	list   []*record
	writes int
}

// forgetLast removes the newest record.
func (l *requestLog) forgetLast(r *record) {
	l.list = l.list[:len(l.list)-1]
	l.seq--
	if r.h.write {
		l.writes--
	}
}

// record records a request before it is processed, with the interface names of that moment.
func (v *VPP) record(h *handler, req api.Message) *record {
	l := &v.log
	if len(l.list) >= 2*l.limit {
		l.list = append(l.list[:0:0], l.list[l.limit:]...)
	}
	l.seq++
	r := &record{seq: l.seq, h: h, req: req, acls: v.aclTags(req)}
	indices.Each(req, func(i uint32) {
		if f := v.ifs.get(i); f != nil {
			if r.names == nil {
				r.names = map[uint32]string{}
			}
			r.names[i] = f.name
		}
	})
	if h.write {
		l.writes++
	}
	l.list = append(l.list, r)
	return r
}

// Log returns the requests since ClearLog, oldest first, at most Config.LogLimit records.
func (v *VPP) Log() []Record {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.log.list
	if len(list) > v.log.limit {
		list = list[len(list)-v.log.limit:]
	}
	out := make([]Record, len(list))
	for i, r := range list {
		out[i] = r.public()
	}
	return out
}

func (r *record) public() Record {
	return Record{Seq: r.seq, Name: r.h.name, Text: r.requestText(), Write: r.h.write, Retval: r.retval}
}

// ClearLog drops the records; Seq continues.
func (v *VPP) ClearLog() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.log.list, v.log.writes = nil, 0
}

// Writes counts the requests since ClearLog that change configuration, refused ones included.
func (v *VPP) Writes() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.log.writes
}

func (r *record) requestText() string {
	if s := r.aclText(); s != "" {
		return s
	}
	return describe.Request(r.req, r.ifName)
}

func (r *record) ifName(i uint32) string {
	if n, ok := r.names[i]; ok {
		return n
	}
	return fmt.Sprintf("unknown:%d", i)
}
