// Package hear turns changes in the policy oracle's worlds into the events of an agent's sources. Invariant: objects take
// the same path as in a cluster, through source/convert, which reads every field. The oracle itself does not use that path.
package hear

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
)

// All is changes as the agent hears them. Only policies that name domains are refused, in part: nobody resolves those.
func All(changes []generate.Change) ([]event.Change, error) {
	var out []event.Change
	for _, c := range changes {
		ch, err := One(c)
		if err == nil && ch.Err != nil && !strings.Contains(ch.Err.Error(), "domainNames") {
			err = ch.Err
		}
		if err != nil {
			return nil, err
		}
		out = append(out, ch)
	}
	return out, nil
}

// One converts a change as the agent's sources do, with the problems that they find. The error is an unknown kind or field.
func One(c generate.Change) (event.Change, error) {
	ch := event.Change{Ref: Ref(c.Key)}
	if c.Object == nil {
		return ch, nil
	}
	if o, ok := c.Object.(runtime.Object); ok {
		ch.Object, ch.Err = convert.Object(o)
		return ch, nil
	}
	group, version, _ := strings.Cut(c.Key.APIVersion, "/")
	kind, known := convert.KindOf(group, c.Key.Kind)
	if !known || kind.Version != version {
		return ch, fmt.Errorf("%s: not a kind the agent reads", c.Key)
	}
	text, err := json.Marshal(c.Object)
	if err != nil {
		return ch, err
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var tree map[string]any
	if err := dec.Decode(&tree); err != nil {
		return ch, err
	}
	var unknown []string
	ch.Object, unknown, ch.Err = kind.Decode(tree)
	if len(unknown) > 0 {
		return ch, fmt.Errorf("%s: fields %v are not known", c.Key, unknown)
	}
	return ch, nil
}

// Ref is the name the agent has for an object.
func Ref(k policy.Key) model.Ref {
	kind := k.Kind
	if kind == "NetworkPolicy" && k.APIVersion == "projectcalico.org/v3" {
		kind = string(model.KindCalicoNetworkPolicy)
	}
	return model.Ref{Kind: model.Kind(kind), Namespace: k.Namespace, Name: k.Name}
}
