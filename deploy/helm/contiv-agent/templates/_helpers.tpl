{{/* An image, by digest if there is one, else by tag if there is one. */}}
{{- define "contiv-agent.image" -}}
{{- if .digest -}}{{ .repository }}@{{ .digest }}{{- else if .tag -}}{{ .repository }}:{{ .tag }}{{- else -}}{{ .repository }}{{- end -}}
{{- end -}}

{{/* A manifest of files/, in the namespace of the release. */}}
{{- define "contiv-agent.file" -}}
{{ .root.Files.Get (printf "files/%s" .name) | replace "contiv-system" .root.Release.Namespace }}
{{- end -}}

{{/* The rest of a container that needs no right on its node. */}}
{{- define "contiv-agent.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: ["ALL"]
{{- end -}}

{{/* "true" if agents connect pods, else "". */}}
{{- define "contiv-agent.cni" -}}
{{- if and .Values.cni.enabled (or (eq .Values.mode "standalone") (eq .Values.mode "fanout")) -}}true{{- end -}}
{{- end -}}
