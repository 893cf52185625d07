package status

import (
	"fmt"

	"github.com/contiv-agent/contiv-agent/agent/proof"
	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
)

// mostDifferences bounds the Services with a separate Event about a difference; beyond that they share one.
const mostDifferences = 20

// differences returns the problems that periodic proofs found: on the Services that VPP serves otherwise than their objects say, and on the Node for
// the packets of pods and for all else. A proof on request is no problem, because nothing repeats it. The texts have no packets: those change with
// each proof, and each text is another Event.
func (p *Picture) differences(last *proof.Summary) (out []event.Problem) {
	if last == nil || !last.Repeats {
		return nil
	}
	names := map[string]model.Ref{}
	if p.Services {
		for _, svc := range p.services() {
			names[svc.ID.String()] = model.Ref{Kind: model.KindService, Namespace: svc.ID.Namespace, Name: svc.ID.Name}
		}
	}
	node := event.Problem{Ref: model.Ref{Kind: model.KindNode, Name: p.Node}, Reason: event.VPPDiffers}
	others := 0
	for _, of := range last.Differing {
		ref, is := names[of]
		if !is {
			others++
			continue
		}
		out = append(out, event.Problem{Ref: ref, Reason: event.VPPDiffers, Text: "VPP treats packets to the Service otherwise than its objects say: contiv-agent verify shows one"})
	}
	if len(out) > mostDifferences {
		node.Text = fmt.Sprintf("VPP treats packets to more than %d Services otherwise than their objects say: contiv-agent verify shows them", mostDifferences)
		return []event.Problem{node}
	}
	if others > 0 {
		node.Text = "VPP passes or drops packets otherwise than the objects say: contiv-agent verify shows an example"
		out = append(out, node)
	}
	return out
}
