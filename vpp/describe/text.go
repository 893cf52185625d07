package describe

import (
	"fmt"
	"reflect"
	"strings"

	"go.fd.io/govpp/api"
	"go.fd.io/govpp/binapi/acl_types"
	"go.fd.io/govpp/binapi/fib_types"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/ip_types"
)

// Request formats a request as one line, the same in plans, logs and goldens: its name and its non-zero fields as name=value.
// ifName returns the names of interfaces; if it is nil or returns "", the line has the interface's index.
func Request(m api.Message, ifName func(index uint32) string) string {
	t := texter{names: ifName}
	t.b.WriteString(m.GetMessageName())
	t.fields(&t.b, reflect.ValueOf(m).Elem())
	return t.b.String()
}

// textList bounds how many elements of a list the line has.
const textList = 64

// noIndex is VPP's "none" for an optional sw_if_index.
const noIndex = ^uint32(0)

type texter struct {
	b     strings.Builder
	names func(uint32) string
}

func (t *texter) ifName(i uint32) string {
	if t.names != nil {
		if name := t.names(i); name != "" {
			return name
		}
	}
	return fmt.Sprint(i)
}

func (t *texter) fields(b *strings.Builder, v reflect.Value) {
	for i := range v.NumField() {
		f, ft := v.Field(i), v.Type().Field(i)
		_, isIndex := f.Interface().(interface_types.InterfaceIndex)
		if ft.Tag.Get("json") == "-" || f.IsZero() && !isIndex { // "-" are lengths of arrays
			continue
		}
		if text := t.value(f); text != "" {
			fmt.Fprintf(b, " %s=%s", wireName(ft), text)
		}
	}
}

// wireName returns VPP's name of a field, from the generated tag.
func wireName(f reflect.StructField) string {
	_, rest, _ := strings.Cut(f.Tag.Get("binapi"), "name=")
	name, _, _ := strings.Cut(rest, ",")
	return name
}

func (t *texter) value(f reflect.Value) string {
	switch x := f.Interface().(type) {
	case interface_types.InterfaceIndex:
		return t.index(uint32(x))
	case fib_types.FibPath:
		return "{" + t.path(&x) + "}"
	case acl_types.ACLRule:
		return "{" + ACLRule(&x) + "}"
	case fmt.Stringer:
		return x.String()
	case string:
		return strings.TrimRight(x, "\x00")
	case bool, uint8, uint16, uint32, uint64, int32, float64:
		return fmt.Sprint(x)
	}
	var b strings.Builder
	switch f.Kind() {
	case reflect.Struct:
		t.fields(&b, f)
		return "{" + strings.TrimPrefix(b.String(), " ") + "}"
	case reflect.Slice, reflect.Array:
		for i := range f.Len() {
			if i > 0 {
				b.WriteByte(' ')
			}
			if more := f.Len() - i; i == textList && more > 1 {
				fmt.Fprintf(&b, "… and %d more", more)
				break
			}
			b.WriteString(t.value(f.Index(i)))
		}
		return "[" + b.String() + "]"
	}
	return fmt.Sprint(f.Interface())
}

func (t *texter) index(i uint32) string {
	if i == noIndex {
		return "" // the usual "none"
	}
	return t.ifName(i)
}

// ACLRule formats a rule as "show acl-plugin acl" does, without parts that match anything: "permit+reflect tcp 10.0.0.0/8
// -> 10.1.1.2/32 dport 80".
func ACLRule(r *acl_types.ACLRule) string {
	words := []string{fmt.Sprint(uint8(r.IsPermit))}
	if int(r.IsPermit) < len(aclActions) {
		words[0] = aclActions[r.IsPermit]
	}
	first, last := "sport", "dport"
	switch r.Proto {
	case 0:
	case ip_types.IP_API_PROTO_ICMP, ip_types.IP_API_PROTO_ICMP6:
		first, last = "type", "code"
		fallthrough
	default:
		words = append(words, strings.ToLower(strings.TrimPrefix(r.Proto.String(), "IP_API_PROTO_")))
	}
	words = append(words, r.SrcPrefix.String(), "->", r.DstPrefix.String())
	span := func(name string, from, to uint16) {
		switch {
		case from == to:
			words = append(words, fmt.Sprintf("%s %d", name, from))
		case from != 0 || to != 65535:
			words = append(words, fmt.Sprintf("%s %d-%d", name, from, to))
		}
	}
	span(first, r.SrcportOrIcmptypeFirst, r.SrcportOrIcmptypeLast)
	span(last, r.DstportOrIcmpcodeFirst, r.DstportOrIcmpcodeLast)
	if r.TCPFlagsMask != 0 {
		words = append(words, fmt.Sprintf("flags %#02x/%#02x", r.TCPFlagsValue, r.TCPFlagsMask))
	}
	return strings.Join(words, " ")
}

var aclActions = [...]string{"deny", "permit", "permit+reflect"} // read only

// path formats a path of a route as "show ip fib" does.
func (t *texter) path(p *fib_types.FibPath) string {
	words := []string{pathType(p.Type)}
	if p.Type == fib_types.FIB_API_PATH_TYPE_NORMAL {
		words[0] = "via"
		if hop := nextHop(p); hop != "" {
			words = append(words, hop)
		}
	}
	if p.SwIfIndex != noIndex && (p.Type == fib_types.FIB_API_PATH_TYPE_NORMAL || p.Type == fib_types.FIB_API_PATH_TYPE_LOCAL) {
		words = append(words, t.ifName(p.SwIfIndex))
	} else if p.Type == fib_types.FIB_API_PATH_TYPE_NORMAL && (p.TableID != 0 || len(words) == 1) {
		words = append(words, fmt.Sprintf("table %d", p.TableID))
	}
	if p.Weight > 1 {
		words = append(words, fmt.Sprintf("weight %d", p.Weight))
	}
	if p.Preference > 0 {
		words = append(words, fmt.Sprintf("preference %d", p.Preference))
	}
	return strings.Join(words, " ")
}

func pathType(t fib_types.FibPathType) string {
	switch t {
	case fib_types.FIB_API_PATH_TYPE_LOCAL:
		return "local"
	case fib_types.FIB_API_PATH_TYPE_DROP:
		return "drop"
	case fib_types.FIB_API_PATH_TYPE_ICMP_UNREACH:
		return "icmp-unreach"
	case fib_types.FIB_API_PATH_TYPE_ICMP_PROHIBIT:
		return "icmp-prohibit"
	}
	return fmt.Sprintf("path-type-%d", t)
}

// nextHop returns the address of a path; "" if it has none.
func nextHop(p *fib_types.FibPath) string {
	if p.Proto == fib_types.FIB_API_PATH_NH_PROTO_IP6 {
		if ip := p.Nh.Address.GetIP6(); !ip.ToIP().IsUnspecified() {
			return ip.String()
		}
		return ""
	}
	if ip := p.Nh.Address.GetIP4(); !ip.ToIP().IsUnspecified() {
		return ip.String()
	}
	return ""
}
