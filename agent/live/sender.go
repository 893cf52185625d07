package live

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/agent/live/inject"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp/tracer"
)

// sender sends the packet of a question. One without an inject.Sender sends nothing.
type sender struct{ *inject.Sender }

// openSender opens the sender of a question in the pod's network namespace.
func (p *Pods) openSender(q Question, f tracer.Filter) (sender, error) {
	if !q.Inject {
		return sender{}, nil
	}
	namespace, err := p.Namespace(q.From)
	if err != nil {
		return sender{}, fmt.Errorf("pod %s: the agent cannot send as the pod: %w", q.From, err)
	}
	s, err := inject.Open(namespace, inject.Header{
		Source: f.Source, Destination: f.Destination, Protocol: model.Protocol(f.Protocol), SourcePort: q.SourcePort, DestinationPort: f.Port,
	})
	if err != nil {
		return sender{}, fmt.Errorf("pod %s: %w", q.From, err)
	}
	return sender{s}, nil
}

func (s sender) send() error {
	if s.Sender == nil {
		return nil
	}
	return s.Send()
}

func (s sender) closeSockets() {
	if s.Sender != nil {
		_ = s.Close() // sockets that hold nothing to write
	}
}

// isForeign reports whether a packet is another one than that of the sender. VPP shows no identifier of ICMPv6: every echo request is the sender's.
func (s sender) isForeign(k tracer.Packet) bool {
	h := k.Opening()
	if s.Sender == nil || h == nil {
		return false
	}
	switch model.Protocol(h.Protocol) {
	case model.ICMPv6:
		return false
	case model.ICMP:
		return h.Identifier != s.Header.SourcePort
	default:
		return h.SourcePort != s.Header.SourcePort
	}
}
