package show

import (
	"slices"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/agent/status"
)

func TestSelect(t *testing.T) {
	for args, want := range map[string]string{
		"":                        "service/dev/web service/prod/db service/prod/web networkpolicy/prod/web adminnetworkpolicy/web",
		"services":                "service/dev/web service/prod/db service/prod/web",
		"policies":                "networkpolicy/prod/web adminnetworkpolicy/web",
		"prod/web":                "service/prod/web",
		"prod/":                   "service/prod/db service/prod/web networkpolicy/prod/web",
		"services prod/":          "service/prod/db service/prod/web",
		"policies web":            "adminnetworkpolicy/web",
		"policies prod/web":       "networkpolicy/prod/web",
		"-n prod":                 "service/prod/db service/prod/web networkpolicy/prod/web",
		"-n dev services":         "service/dev/web",
		"prod/none":               "no Service prod/none; names are NAMESPACE/NAME",
		"policies prod/db":        "no policy prod/db; names are NAMESPACE/NAME, or NAME of a policy without a namespace",
		"-n dev prod/web":         "no Service prod/web; names are NAMESPACE/NAME",
		"services prod/web dev/":  "no Service prod/web; names are NAMESPACE/NAME",
		"services prod/web prod/": "service/prod/web",
	} {
		st := &status.Status{
			Services: []status.Service{{Name: "dev/web"}, {Name: "prod/db"}, {Name: "prod/web"}},
			Policies: []status.Policy{{Object: "NetworkPolicy prod/web"}, {Object: "AdminNetworkPolicy web"}},
		}
		words := strings.Fields(args)
		var namespaces []string
		if len(words) > 0 && words[0] == "-n" {
			namespaces, words = words[1:2], words[2:]
		}
		got := ""
		if err := Select(st, slices.Clone(words), namespaces); err != nil {
			got = err.Error()
		} else {
			got = strings.Join(StatusNames(st), " ")
		}
		if got != want {
			t.Errorf("%q: %s, want %s", args, got, want)
		}
	}
}
