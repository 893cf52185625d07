package encode

import (
	"github.com/contiv-agent/contiv-agent/calico"
	"github.com/contiv-agent/contiv-agent/calico/datastore"
	v3 "github.com/contiv-agent/contiv-agent/calico/v3"
	"github.com/contiv-agent/contiv-agent/model"
)

// Builtin returns the keys that a datastore has without any object: the ready flag, the profile that allows everything, and
// the tiers of Kubernetes' policies. Objects with the same keys replace them.
func Builtin() []calico.KV {
	allow := []v3.Rule{{Action: "Allow"}}
	list, err := encodeProfile(&v3Profile{
		Kind: "Profile", APIVersion: apiVersion, Metadata: meta{Name: "projectcalico-default-allow"},
		Spec: v3.ProfileSpec{Ingress: allow, Egress: allow},
	})
	for _, t := range model.BuiltinTiers() {
		var kv calico.KV
		if err == nil {
			kv, err = datastore.NewKV(datastore.Key{Kind: datastore.KeyTier, Name: t.Name}, datastore.Tier{Order: &t.Order.Value, DefaultAction: string(t.DefaultAction)})
		}
		list = append(list, kv)
	}
	if err != nil {
		panic(err) // cannot happen: constants
	}
	return append(list, calico.KV{Key: datastore.Key{Kind: datastore.KeyReady}.String(), Value: []byte("true")})
}
