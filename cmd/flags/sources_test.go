package flags

import "testing"

// TestSearches: a given address is final, of a kubeconfig, too.
func TestSearches(t *testing.T) {
	for _, tc := range []struct {
		from Sources
		want bool
	}{
		{Sources{InCluster: true}, true},
		{Sources{InCluster: true, APIServer: "https://192.0.2.1:6443"}, false},
		{Sources{InCluster: true, Kubeconfig: "kubelet.conf"}, false},
		{Sources{Kubeconfig: "kubelet.conf"}, false},
		{Sources{}, false},
	} {
		if got := tc.from.searches(); got != tc.want {
			t.Errorf("%+v: %v", tc.from, got)
		}
	}
	if got := (&Sources{APIServer: "https://192.0.2.1:6443"}).ServerHostPort(t.Context()); got != "" {
		t.Errorf("API server %s without a flag that asks for one", got)
	}
}
