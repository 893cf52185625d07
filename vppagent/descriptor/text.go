package descriptor

import (
	"encoding/json"
	"fmt"

	"go.fd.io/govpp/api"
)

// Text is a request on one line: its name and its fields as JSON, zero ones left out.
func Text(m api.Message) string {
	fields, err := json.Marshal(m)
	if err != nil {
		return fmt.Sprintf("%s %+v", m.GetMessageName(), m)
	}
	return m.GetMessageName() + " " + string(fields)
}
