package status

import (
	"encoding/json"
	"testing"
)

func TestStatusForProgramsNamesObjects(t *testing.T) {
	for want, v := range map[string]any{
		`{"object":"Service prod/web","state":"REFUSED","text":"no","objectRef":{"kind":"Service","namespace":"prod","name":"web"}}`: Problem{"Service prod/web", "REFUSED", "no"},
		`{"object":"VPP","state":"PENDING"}`:                                                                      Problem{Object: "VPP", State: "PENDING"},
		`{"object":"Node node-1","error":"no","objectRef":{"kind":"Node","name":"node-1"}}`:                       Refusal{Object: "Node node-1", Error: "no"},
		`{"object":"Pod a/b","reason":"isolated","objectRef":{"kind":"Pod","namespace":"a","name":"b"}}`:          Note{Object: "Pod a/b", Reason: "isolated"},
		`{"name":"prod/web","state":"CONFIGURED","objectRef":{"kind":"Service","namespace":"prod","name":"web"}}`: Service{Name: "prod/web", State: "CONFIGURED"},
	} {
		got, err := json.Marshal(v)
		if err != nil || string(got) != want {
			t.Errorf("%s, %v, want %s", got, err, want)
		}
	}
}
