package policy_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/contiv-agent/contiv-agent/event"
	"github.com/contiv-agent/contiv-agent/source/convert"
	"github.com/contiv-agent/contiv-agent/test/oracle/hear"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy"
	"github.com/contiv-agent/contiv-agent/test/oracle/policy/generate"
)

// TestBrokenPoliciesFailClosed garbles a policy of each random cluster. If the agent says that it does not understand it,
// nothing may pass then that the policy, as it was meant, would have stopped.
func TestBrokenPoliciesFailClosed(t *testing.T) { grow(t, brokenWorlds, growBroken) }

const (
	brokenWorlds = 500
	garblings    = 8 // of each world
)

func growBroken(t *testing.T, seed uint64) (flows int) {
	w := generate.NewWorld(seed, generate.AllKinds())
	objects := w.Objects()
	names, own := nodesOf(objects)
	c, err := policy.Read(objects)
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return 0
	}
	list, err := hear.All(allOf(objects))
	if err != nil {
		t.Errorf("seed %d: %v", seed, err)
		return 0
	}
	g := newGraphs(names)
	if err := g.apply(list); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	asked := w.Flows(2)
	for range garblings {
		policies := w.Policies()
		whole := policies[int(seed)%len(policies)]
		seed++
		tree := w.Garble(whole)
		good, err := hear.One(generate.Change{Key: policy.KeyOf(whole), Object: whole})
		if tree == nil || err != nil || good.Err != nil {
			continue
		}
		broken := decode(t, policy.KeyOf(whole), tree)
		if broken.Err == nil {
			continue // it means something else now, and is understood
		}
		if err := g.apply([]event.Change{broken}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
		for _, f := range asked {
			flows++
			if !g.allows(&f, own) || c.Judge(&f).Allowed {
				continue
			}
			text, _ := yaml.Marshal(tree)
			t.Errorf("seed %d: %v passes, because this is not understood: %v\n%s\nmeant was\n%swhere it is denied: %s", seed, f, broken.Err, text, policy.YAML([]policy.Object{whole}), c.Judge(&f).Why)
			return flows
		}
		if err := g.apply([]event.Change{good}); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
	return flows
}

// decode is a tree as the agent hears of it.
func decode(t *testing.T, key policy.Key, tree map[string]any) event.Change {
	text, err := json.Marshal(tree)
	if err != nil {
		t.Error(err)
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var numbers map[string]any
	if err := dec.Decode(&numbers); err != nil {
		t.Error(err)
	}
	group, _, _ := strings.Cut(key.APIVersion, "/")
	kind, known := convert.KindOf(group, key.Kind)
	if !known {
		t.Errorf("%s: not a kind the agent reads", key)
	}
	ch := event.Change{Ref: hear.Ref(key)}
	ch.Object, _, ch.Err = kind.Decode(numbers)
	return ch
}
