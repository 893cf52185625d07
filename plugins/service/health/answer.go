package health

import (
	"encoding/json"
	"net/http"
	"strconv"

	"github.com/contiv-agent/contiv-agent/model"
)

// body is the answer of kube-proxy v1.36 (pkg/proxy/healthcheck), byte for byte.
type body struct {
	Service             service `json:"service"`
	LocalEndpoints      int     `json:"localEndpoints"`
	ServiceProxyHealthy bool    `json:"serviceProxyHealthy"`
}

type service struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// writeAnswer returns 200 if the node has endpoints and the proxy is healthy, else 503, whatever the method and path of the request. Load
// balancers may distribute traffic by the weight.
func writeAnswer(w http.ResponseWriter, id model.ServiceID, endpoints int, healthy bool) {
	text, err := json.MarshalIndent(body{service{id.Namespace, id.Name}, endpoints, healthy}, "", "\t")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(endpoints))
	code := http.StatusServiceUnavailable
	if endpoints != 0 && healthy {
		code = http.StatusOK
	}
	w.WriteHeader(code)
	_, _ = w.Write(text) // the client has disconnected
}
