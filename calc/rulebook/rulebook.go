package rulebook

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/contiv-agent/contiv-agent/model"
)

// Rulebook is the rules of a policy, packed. Most policies of a cluster apply to no endpoint of this node and are only
// kept, and a model.Rule is large and mostly empty. Equal rulebooks are equal rules.
type Rulebook string

// Pack packs rules. Unpacking makes empty lists nil. Scratch is space that is reused.
func Pack(inbound, outbound []model.Rule, scratch *[]byte) Rulebook {
	if len(inbound)+len(outbound) == 0 {
		return ""
	}
	w := packer{out: (*scratch)[:0]}
	w.ruleList(&inbound, nil)
	w.ruleList(&outbound, nil)
	*scratch = w.out
	return Rulebook(w.out)
}

// Unpack returns the rules. The lists are valid until scratch is used again; what they refer to stays valid.
func (b Rulebook) Unpack(scratch *[]model.Rule) (inbound, outbound []model.Rule) {
	if b == "" {
		return nil, nil
	}
	w := packer{in: string(b), reading: true}
	*scratch = (*scratch)[:0]
	if n := w.ruleList(nil, scratch); n > 0 {
		inbound = (*scratch)[:n:n]
	}
	if w.ruleList(nil, scratch) > 0 {
		outbound = (*scratch)[len(inbound):]
	}
	return inbound, outbound
}

// packer writes or reads. One description of the format serves both directions, so they cannot differ. Writing does not
// change its arguments: they may be shared.
type packer struct {
	out     []byte
	in      string
	reading bool
	mask    uint16 // which fields of the present group are set
	field   int    // number of the next field
}

// ruleList appends to scratch when reading, and returns the number of rules.
func (w *packer) ruleList(list, scratch *[]model.Rule) int {
	if !w.reading {
		w.out = binary.AppendUvarint(w.out, uint64(len(*list)))
		for i := range *list {
			w.ruleFields(&(*list)[i])
		}
		return len(*list)
	}
	n := int(w.uvarint())
	for range n {
		*scratch = append(*scratch, model.Rule{})
		w.ruleFields(&(*scratch)[len(*scratch)-1])
	}
	return n
}

func (w *packer) ruleFields(r *model.Rule) {
	w.group(func() {
		w.textField((*string)(&r.Action))
		w.small(&r.IPVersion)
		w.small(&r.Protocol.Number)
		w.textField(&r.Protocol.Name)
		w.small(&r.NotProtocol.Number)
		w.textField(&r.NotProtocol.Name)
		w.matchICMP(&r.ICMP)
		w.matchICMP(&r.NotICMP)
		w.http(&r.HTTP)
		w.annotations(&r.Annotations)
		w.textField(&r.Origin)
	})
	w.peer(&r.Source)
	w.peer(&r.Destination)
}

func (w *packer) peer(p *model.Peer) {
	w.group(func() {
		w.nets(&p.Nets)
		w.portList(&p.Ports)
		w.textField(&p.Selector)
		w.nets(&p.NotNets)
		w.portList(&p.NotPorts)
		w.textField(&p.NotSelector)
		w.textField(&p.Service.Namespace)
		w.textField(&p.Service.Name)
		w.textField(&p.OriginalSelector)
		w.textField(&p.OriginalNamespaceSelector)
		w.textField(&p.OriginalNotSelector)
		w.texts(&p.ServiceAccountNames)
		w.textField(&p.ServiceAccountSelector)
	})
}

// group is up to sixteen fields, preceded by a mask of those that are set.
func (w *packer) group(fields func()) {
	w.mask, w.field = 0, 0
	if w.reading {
		w.mask = uint16(w.in[0]) | uint16(w.in[1])<<8
		w.in = w.in[2:]
		fields()
		return
	}
	head := len(w.out)
	w.out = append(w.out, 0, 0)
	fields()
	binary.LittleEndian.PutUint16(w.out[head:], w.mask)
}

// fieldPresent begins a field. When writing it records whether the field is set; when reading it returns that.
func (w *packer) fieldPresent(present bool) bool {
	if w.reading {
		present = w.mask>>w.field&1 == 1
	} else if present {
		w.mask |= 1 << w.field
	}
	w.field++
	return present
}

func (w *packer) uvarint() uint64 {
	var v uint64
	for shift := 0; ; shift += 7 {
		b := w.in[0]
		w.in = w.in[1:]
		if v |= uint64(b&0x7f) << shift; b < 0x80 {
			return v
		}
	}
}

// intValue writes or reads a number, such as the length of what follows.
func (w *packer) intValue(n int) int {
	if w.reading {
		return int(w.uvarint())
	}
	w.out = binary.AppendUvarint(w.out, uint64(n))
	return n
}

func (w *packer) bytes(s *string) {
	n := w.intValue(len(*s))
	if !w.reading {
		w.out = append(w.out, *s...)
		return
	}
	*s, w.in = w.in[:n], w.in[n:]
}

func (w *packer) octet(b *uint8) {
	if !w.reading {
		w.out = append(w.out, *b)
		return
	}
	*b, w.in = w.in[0], w.in[1:]
}

func (w *packer) portNumber(p *uint16) {
	if n := w.intValue(int(*p)); w.reading {
		*p = uint16(n)
	}
}

func (w *packer) textField(s *string) {
	if w.fieldPresent(*s != "") {
		w.bytes(s)
	}
}

func (w *packer) small(b *uint8) {
	if w.fieldPresent(*b != 0) {
		w.octet(b)
	}
}

// listOf writes or reads each element of a list that may be empty.
func listOf[T any](w *packer, items *[]T, one func(*T)) {
	if !w.fieldPresent(len(*items) > 0) {
		return
	}
	n := w.intValue(len(*items))
	if w.reading {
		*items = make([]T, n)
	}
	for i := range *items {
		one(&(*items)[i])
	}
}

func (w *packer) texts(items *[]string) { listOf(w, items, w.bytes) }

func (w *packer) nets(items *[]netip.Prefix) {
	listOf(w, items, func(p *netip.Prefix) {
		if !w.reading {
			raw, _ := p.MarshalBinary() // never fails
			text := string(raw)
			w.bytes(&text)
			return
		}
		var text string
		w.bytes(&text)
		_ = p.UnmarshalBinary([]byte(text)) // valid, because pack wrote it
	})
}

func (w *packer) portList(items *[]model.PortMatch) {
	listOf(w, items, func(p *model.PortMatch) {
		w.portNumber(&p.First)
		w.portNumber(&p.Last)
		w.bytes(&p.Name)
	})
}

// pointer writes or reads the target of a pointer that may be nil.
func pointer[T any](w *packer, p **T, fields func(*T)) {
	if !w.fieldPresent(*p != nil) {
		return
	}
	if w.reading {
		*p = new(T)
	}
	fields(*p)
}

func (w *packer) matchICMP(m **model.ICMPMatch) {
	pointer(w, m, func(m *model.ICMPMatch) {
		w.octet(&m.Type)
		code := uint8(0)
		if m.HasCode {
			code = 1
		}
		w.octet(&code)
		w.octet(&m.Code)
		if w.reading {
			m.HasCode = code == 1
		}
	})
}

func (w *packer) http(m **model.HTTPMatch) {
	pointer(w, m, func(m *model.HTTPMatch) {
		methods, paths := w.intValue(len(m.Methods)), w.intValue(len(m.Paths))
		if w.reading {
			m.Methods, m.Paths = slices.Grow(m.Methods, methods)[:methods], slices.Grow(m.Paths, paths)[:paths]
		}
		for i := range m.Methods {
			w.bytes(&m.Methods[i])
		}
		for i := range m.Paths {
			w.bytes(&m.Paths[i].Exact)
			w.bytes(&m.Paths[i].Prefix)
		}
	})
}

func (w *packer) annotations(m *map[string]string) {
	if !w.fieldPresent(len(*m) > 0) {
		return
	}
	keys := make([]string, 0, len(*m))
	for k := range *m {
		keys = append(keys, k)
	}
	slices.Sort(keys) // equal rules must give equal rulebooks
	n := w.intValue(len(keys))
	if w.reading {
		*m = make(map[string]string, n)
		keys = make([]string, n)
	}
	for _, k := range keys {
		v := (*m)[k]
		w.bytes(&k)
		w.bytes(&v)
		if w.reading {
			(*m)[k] = v
		}
	}
}
