package l2

import (
	"errors"

	"go.fd.io/govpp/binapi/l2"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
	"github.com/contiv-agent/contiv-agent/vppagent/descriptor"
)

// xconnect sends all packets that one interface receives out of another.
type xconnect struct{ receive, transmit string }

// XConnect describes ligato's XConnectPair: one direction. It is bound to both interfaces: VPP gives the index of a deleted
// transmitting interface to the next new interface, which would then send another owner's frames.
func XConnect() *descriptor.Descriptor {
	return descriptor.Spec[*ligato.XConnectPair, *xconnect]{
		Name: "xconnect", Prefix: "config/vpp/l2/v2/xconnect/",
		Compile: func(_ string, m *ligato.XConnectPair) (*xconnect, error) {
			switch {
			case m.GetReceiveInterface() == "":
				return nil, errors.New("receive_interface: empty")
			case m.GetTransmitInterface() == "":
				return nil, errors.New("transmit_interface: empty")
			case m.GetTransmitInterface() == m.GetReceiveInterface():
				return nil, errors.New("transmit_interface: the receiving one")
			}
			return &xconnect{m.GetReceiveInterface(), m.GetTransmitInterface()}, nil
		},
		Message: func(x *xconnect) *ligato.XConnectPair {
			return &ligato.XConnectPair{ReceiveInterface: x.receive, TransmitInterface: x.transmit}
		},
		Equal: func(have, want *xconnect) bool { return have.transmit == want.transmit },
		Dependencies: func(x *xconnect) []descriptor.Dependency {
			return []descriptor.Dependency{{Key: kv.InterfaceKey(x.receive), Bond: descriptor.Dies}, {Key: kv.InterfaceKey(x.transmit), Bond: descriptor.Dies}}
		},
		Claims: func(x *xconnect) []string { return []string{l2Claim(x.receive)} },
		Create: func(w *descriptor.World, x *xconnect) ([]descriptor.Op, error) { return x.sendXconnect(w, true) },
		Update: func(w *descriptor.World, _, want *xconnect) ([]descriptor.Op, error) {
			return want.sendXconnect(w, true)
		}, // replaces
		Delete: func(w *descriptor.World, x *xconnect) ([]descriptor.Op, error) { return x.sendXconnect(w, false) },
		Dumps: func(*descriptor.World, descriptor.Candidates) []descriptor.Request {
			return []descriptor.Request{xconnectRequest()}
		},
		Retrieve: retrieveXConnects,
	}.Descriptor()
}

func xconnectRequest() descriptor.Request {
	return descriptor.DumpRequest("l2_xconnect_dump", &l2.L2XconnectDump{})
}

func (x *xconnect) sendXconnect(w *descriptor.World, add bool) ([]descriptor.Op, error) {
	rx, err := w.Index(x.receive)
	if err != nil {
		return nil, err
	}
	if !add {
		return []descriptor.Op{{Call: descriptor.Write(&l2.SwInterfaceSetL2Xconnect{RxSwIfIndex: rx}), Gone: true, Frees: descriptor.Claim{Name: l2Claim(x.receive)}}}, nil
	}
	tx, err := w.Index(x.transmit)
	if err != nil {
		return nil, err
	}
	return []descriptor.Op{{Call: descriptor.Write(&l2.SwInterfaceSetL2Xconnect{RxSwIfIndex: rx, TxSwIfIndex: tx, Enable: true}), Takes: descriptor.Claim{Name: l2Claim(x.receive)}}}, nil
}

func retrieveXConnects(w *descriptor.World, d *descriptor.Dump, c descriptor.Candidates) ([]descriptor.Found, error) {
	all, err := descriptor.Details[*l2.L2XconnectDetails](d, xconnectRequest().ID)
	if err != nil {
		return nil, err
	}
	peers := map[uint32]uint32{}
	for _, m := range all {
		peers[uint32(m.RxSwIfIndex)] = uint32(m.TxSwIfIndex)
	}
	var out []descriptor.Found
	c.Each(func(key string, state any, wanted bool) {
		x := state.(*xconnect)
		rx, ok := w.Interface(x.receive)
		if !ok || !wanted && c.Wanted(key) != nil {
			return
		}
		peer, ok := peers[rx.Index]
		if !ok {
			return
		}
		got := *x
		if tx, ok := w.Interface(x.transmit); !ok || tx.Index != peer {
			got.transmit = w.Name(peer)
		}
		out = append(out, descriptor.Found{Key: key, State: &got})
	})
	return out, nil
}
