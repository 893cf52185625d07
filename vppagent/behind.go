package vppagent

import (
	"fmt"
	"slices"
	"time"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/nat/gate"
)

// note records that VPP does not have the desired state of v. It keeps others waiting (gate.Behind) up to its fifth attempt, by default for 15 s. Lists
// that consist of source ranges keep only the mappings waiting that need them.
func (x *execution) note(v *value) {
	const most = 8 * time.Second // the pause before the fifth attempt
	if v.msg != nil && v.want != nil && v.backoff < most {
		x.refused = append(x.refused, v)
	}
}

// noteOlder records the values that VPP refused earlier and that the present plan does not try.
func (x *execution) noteOlder() {
	x.refused = nil
	for v := range x.a.retrying {
		if v.plan.epoch != x.p.epoch {
			x.note(v)
		}
	}
}

// notReady makes the reason why a value must not be put now the error of its step; false: it may be put.
func (x *execution) notReady(v *value) bool {
	if v.plan.err = x.a.cfg.Quarantine.Refuse(x.behind(v), v.key, v.want, v.kind.Message); v.plan.err == nil && v.kind.Ready != nil {
		v.plan.err = v.kind.Ready(x.a.g.world, v.have, v.want, x.a.g.sure)
	}
	v.plan.unsent = v.plan.err != nil
	return v.plan.unsent
}

// behind returns why a value must wait for one that VPP refuses; nil: it need not.
func (x *execution) behind(v *value) error {
	if len(x.refused) == 0 || v.kind.Name != gate.Kind {
		return nil
	}
	kinds := gate.Behind(v.kind.Message, v.have, v.want)
	if i := slices.IndexFunc(x.refused, func(r *value) bool { return slices.Contains(kinds, r.kind.Name) }); i >= 0 {
		return fmt.Errorf("it waits for %s, which VPP refuses", x.refused[i].key)
	}
	return nil
}
