package policer

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"go.fd.io/govpp/api"
	vpppolicer "go.fd.io/govpp/binapi/policer"
	"go.fd.io/govpp/binapi/policer_types"

	"github.com/contiv-agent/contiv-agent/kv"
	contivpolicer "github.com/contiv-agent/contiv-agent/proto/contiv/vpp/policer"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

const idPolicers = "policer_dump"

// limit is a policer of one direction of an interface.
type limit struct {
	iface  string
	output bool
	rate   uint32 // kbit per second
	burst  uint64 // bytes
	off    bool   // packets do not meet it, as found: an agent that was killed had made it and not applied it
}

// Policer describes our Policer. VPP keeps a policer when its interface is deleted, and takes it off the interface. A change of the rate makes another
// policer: an update needs the number that only the reply to the creation has.
func Policer() *descriptor.Descriptor {
	d := descriptor.Spec[*contivpolicer.Policer, *limit]{
		Name: "policer", Prefix: "config/contiv/vpp/v1/policer/", Tagged: true,
		Compile: compileLimit, Message: (*limit).limitMessage,
		Equal: func(have, want *limit) bool { return have.sameRate(want) && have.off == want.off },
		Dependencies: func(l *limit) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(l.iface), Bond: descriptor.Dies, Pods: true}}
		},
		Recreate: func(have, want *limit) bool { return !have.sameRate(want) },
		Create: func(w *descriptor.World, l *limit) ([]descriptor.Op, error) {
			return l.send(w, write(l.addDel(true)), l.apply(true))
		},
		Update: func(w *descriptor.World, _, want *limit) ([]descriptor.Op, error) {
			return want.send(w, want.apply(true))
		},
		Delete:   deleteLimit,
		Retrieve: retrieveLimits,
	}.Descriptor()
	d.Dumps = limitDumps
	return d
}

func compileLimit(_ string, m *contivpolicer.Policer) (*limit, error) {
	l := &limit{iface: m.GetInterface(), output: m.GetDirection() == contivpolicer.Policer_OUTPUT, rate: m.GetRate(), burst: m.GetBurst()}
	_, known := contivpolicer.Policer_Direction_name[int32(m.GetDirection())]
	switch {
	case l.iface == "":
		return nil, errors.New("interface: empty")
	case !known:
		return nil, fmt.Errorf("direction: unknown %d", m.GetDirection())
	case l.rate == 0:
		return nil, errors.New("rate: 0 lets nothing pass")
	case l.burst == 0 || l.burst > math.MaxUint32:
		return nil, fmt.Errorf("burst: %d bytes: VPP's bucket has 1 to %d", l.burst, uint32(math.MaxUint32))
	}
	return l, nil
}

func (l *limit) limitMessage() *contivpolicer.Policer {
	m := &contivpolicer.Policer{Interface: l.iface, Rate: l.rate, Burst: l.burst}
	if l.output {
		m.Direction = contivpolicer.Policer_OUTPUT
	}
	return m
}

func (l *limit) sameRate(o *limit) bool { return l.rate == o.rate && l.burst == o.burst }

// The kinds of tags that are names of our policers. With the longest name of an interface of ours they fill a name of VPP's.
const (
	inputTag  = "p"
	outputTag = "P"
)

// vppName is the policer's name in VPP.
func (l *limit) vppName() string {
	if l.output {
		return descriptor.NewTag(outputTag, "", l.iface)
	}
	return descriptor.NewTag(inputTag, "", l.iface)
}

func (l *limit) addDel(add bool) *vpppolicer.PolicerAddDel {
	m := &vpppolicer.PolicerAddDel{IsAdd: add, Name: l.vppName()}
	if add {
		m.Cir, m.Cb, m.ConformAction.Type = l.rate, l.burst, policer_types.SSE2_QOS_ACTION_API_TRANSMIT
	}
	return m
}

// request makes a request for the interface's index.
type request func(w *descriptor.World) (descriptor.Op, error)

func write(m api.Message) request {
	return func(*descriptor.World) (descriptor.Op, error) { return descriptor.Op{Call: descriptor.Write(m)}, nil }
}

// apply puts the policer on the interface, or takes it off.
func (l *limit) apply(on bool) request {
	return func(w *descriptor.World) (descriptor.Op, error) {
		idx, err := w.Index(l.iface)
		if err != nil {
			return descriptor.Op{}, err
		}
		if l.output {
			return descriptor.Op{Call: descriptor.Write(&vpppolicer.PolicerOutput{Name: l.vppName(), SwIfIndex: idx, Apply: on})}, nil
		}
		return descriptor.Op{Call: descriptor.Write(&vpppolicer.PolicerInput{Name: l.vppName(), SwIfIndex: idx, Apply: on})}, nil
	}
}

// send sends requests one after the other.
func (l *limit) send(w *descriptor.World, list ...request) ([]descriptor.Op, error) {
	ops := make([]descriptor.Op, 0, len(list))
	for _, r := range list {
		op, err := r(w)
		if err != nil {
			return nil, err
		}
		ops = append(ops, op)
	}
	return descriptor.InTurn(ops), nil
}

// deleteLimit first takes the policer off its interface, if the interface has it.
func deleteLimit(w *descriptor.World, l *limit) ([]descriptor.Op, error) {
	gone := func(*descriptor.World) (descriptor.Op, error) {
		return descriptor.Op{Gone: true, Call: descriptor.Write(l.addDel(false))}, nil
	}
	if _, here := w.Interface(l.iface); !here || l.off {
		return l.send(w, gone)
	}
	return l.send(w, l.apply(false), gone)
}

// limitDumps ask for the policers, and then for the nodes of the interfaces that they are for.
func limitDumps(w *descriptor.World, c descriptor.Candidates, known *descriptor.Dump) []descriptor.Request {
	out := []descriptor.Request{descriptor.DumpRequest(idPolicers, &vpppolicer.PolicerDump{})}
	if known == nil {
		return out
	}
	all, err := foundLimits(known, c)
	if err != nil {
		return out // Retrieve reports it
	}
	asked := map[string]bool{}
	for _, l := range all {
		if i, ok := w.Interface(l.iface); ok && i.Nameable() && !asked[i.VPPName] {
			asked[i.VPPName] = true
			ask := descriptor.ShowFeatures(i.VPPName)
			out = append(out, descriptor.AskRequest(ask.Cmd, ask))
		}
	}
	return out
}

func retrieveLimits(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) (out []descriptor.Found, err error) {
	all, err := foundLimits(d, c)
	if err != nil {
		return nil, err
	}
	for _, l := range all {
		if l.off, err = l.isOff(w, d); err != nil {
			return nil, err
		}
		out = append(out, descriptor.Found{Key: kv.Key(l.limitMessage()), State: l, Ours: true})
	}
	return out, nil
}

// foundLimits are our policers in VPP. A name that is a hash is one of the candidates'.
func foundLimits(d *descriptor.Dump, c descriptor.Candidates) (out []*limit, _ error) {
	all, err := descriptor.Details[*vpppolicer.PolicerDetails](d, idPolicers)
	if err != nil {
		return nil, descriptor.Optional(err)
	}
	hashed := map[string]*limit{}
	c.Each(func(_ string, state any, _ bool) { hashed[state.(*limit).vppName()] = state.(*limit) })
	for _, m := range all {
		l := &limit{rate: m.Cir, burst: m.Cb}
		_, in, isIn := descriptor.ParseTag(m.Name, inputTag, false)
		_, to, isOut := descriptor.ParseTag(m.Name, outputTag, false)
		switch known := hashed[m.Name]; {
		case known != nil:
			l.iface, l.output = known.iface, known.output
		case isIn:
			l.iface = in
		case isOut:
			l.iface, l.output = to, true
		default:
			continue // foreign
		}
		out = append(out, l)
	}
	return out, nil
}

// isOff reports that packets do not meet the policer. Of an interface that VPP's command line cannot name, nothing shows that: there it is where the
// agent applies it.
func (l *limit) isOff(w *descriptor.World, d *descriptor.Dump) (bool, error) {
	i, here := w.Interface(l.iface)
	if !here || !i.Nameable() {
		return !here, nil
	}
	r, err := d.Reply(descriptor.ShowFeatures(i.VPPName).Cmd)
	if err != nil {
		return false, err
	}
	nodes, err := descriptor.NodesOn(r)
	if err != nil {
		return false, err
	}
	if l.output {
		return !slices.Contains(nodes["ip4-output"], "policer-output"), nil
	}
	on := func(arc string) bool { return slices.Contains(nodes[arc], "policer-input") }
	return !on("device-input") && !on("ip4-unicast"), nil // up to 25.10; from 26.06 on
}
