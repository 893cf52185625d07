package descriptor

import (
	"errors"

	"go.fd.io/govpp/binapi/l2"

	"github.com/contiv-agent/contiv-agent/kv"
	ligato "github.com/contiv-agent/contiv-agent/proto/ligato/vpp/l2"
)

// xconnect sends all that one interface receives out of another.
type xconnect struct{ receive, transmit string }

// XConnect describes ligato's XConnectPair: one direction. It is bound to both interfaces: VPP gives the index of a transmitting
// interface that goes to the next one that comes, which would then send somebody else's frames.
func XConnect() *Descriptor {
	return Spec[*ligato.XConnectPair, *xconnect]{
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
		Dependencies: func(x *xconnect) []Dependency {
			return []Dependency{{Key: kv.InterfaceKey(x.receive), Bond: Dies}, {Key: kv.InterfaceKey(x.transmit), Bond: Dies}}
		},
		Claims:   func(x *xconnect) []string { return []string{l2Claim(x.receive)} },
		Create:   func(w *World, x *xconnect) ([]Op, error) { return x.send(w, true) },
		Update:   func(w *World, _, want *xconnect) ([]Op, error) { return want.send(w, true) }, // replaces
		Delete:   func(w *World, x *xconnect) ([]Op, error) { return x.send(w, false) },
		Dumps:    func(*World, Candidates) []Request { return []Request{xconnectRequest()} },
		Retrieve: retrieveXConnects,
	}.Descriptor()
}

func xconnectRequest() Request { return dump("l2_xconnect_dump", &l2.L2XconnectDump{}) }

func (x *xconnect) send(w *World, add bool) ([]Op, error) {
	rx, err := w.index(x.receive)
	if err != nil {
		return nil, err
	}
	if !add {
		return []Op{{Call: write(&l2.SwInterfaceSetL2Xconnect{RxSwIfIndex: rx}), Gone: true, Frees: Claim{name: l2Claim(x.receive)}}}, nil
	}
	tx, err := w.index(x.transmit)
	if err != nil {
		return nil, err
	}
	return []Op{{Call: write(&l2.SwInterfaceSetL2Xconnect{RxSwIfIndex: rx, TxSwIfIndex: tx, Enable: true}), Takes: Claim{name: l2Claim(x.receive)}}}, nil
}

func retrieveXConnects(w *World, d *Dump, c Candidates) ([]Found, error) {
	all, err := details[*l2.L2XconnectDetails](d, xconnectRequest().ID)
	if err != nil {
		return nil, err
	}
	peers := map[uint32]uint32{}
	for _, m := range all {
		peers[uint32(m.RxSwIfIndex)] = uint32(m.TxSwIfIndex)
	}
	var out []Found
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
		out = append(out, Found{Key: key, State: &got})
	})
	return out, nil
}
