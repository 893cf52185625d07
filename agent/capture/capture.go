// Package capture turns the name of a pod of this node into a pcap file with the packets that its interface in VPP receives and sends.
//
// Invariant: the package captures only at the interface to which VPP routes the pod's address.
package capture

import (
	"context"
	"fmt"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/vpp/capture"
)

// Pods captures packets of pods.
type Pods struct {
	Node      string
	Do        capture.Do
	InLoop    func(context.Context, func()) error
	Objects   func() []model.Object // called in the loop
	Interface *capture.Interface    // nil: every capture is refused
}

// Until returns Capture for captures that end when ctx ends.
func (p *Pods) Until(ctx context.Context) func(context.Context, model.PodID, capture.Limits, <-chan struct{}) ([]byte, error) {
	return func(request context.Context, id model.PodID, l capture.Limits, stop <-chan struct{}) ([]byte, error) {
		request, cancel := context.WithCancel(request)
		defer cancel()
		defer context.AfterFunc(ctx, cancel)()
		return p.Capture(request, id, l, stop)
	}
}

// Capture captures at the interface of a pod, by the rules of capture.Interface.
func (p *Pods) Capture(ctx context.Context, id model.PodID, l capture.Limits, stop <-chan struct{}) ([]byte, error) {
	if p.Interface == nil {
		return nil, fmt.Errorf("pod %s: this agent does not capture packets", id)
	}
	var pod *model.Pod
	if err := p.InLoop(ctx, func() { pod = findPod(p.Objects(), id) }); err != nil {
		return nil, err
	}
	if err := pod.WithoutInterface(id, p.Node); err != nil {
		return nil, err
	}
	index, err := capture.InterfaceOf(ctx, p.Do, pod.IPs[0])
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", id, err)
	}
	return p.Interface.Capture(ctx, p.Do, index, l, stop)
}

func findPod(objects []model.Object, id model.PodID) *model.Pod {
	for _, o := range objects {
		if pod, ok := o.(*model.Pod); ok && pod.ID == id {
			return pod
		}
	}
	return nil
}
