{{/* Felix starts its driver itself, so the program has to be where Felix is. */}}
{{- define "contiv-agent.driver" -}}
- name: driver
  image: {{ include "contiv-agent.image" .Values.images.agent }}
  {{- with .Values.images.agent.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: ["contiv-agent"]
  args:
    - felix-driver
    - --install=/driver
  securityContext:
    runAsUser: 0
    {{- include "contiv-agent.confined" . | nindent 4 }}
  resources:
    requests:
      cpu: 10m
      memory: 64Mi
    limits:
      memory: 256Mi
  volumeMounts:
    - name: driver
      mountPath: /driver
{{- end -}}

{{- define "contiv-agent.felix" -}}
- name: felix
  image: {{ include "contiv-agent.image" .Values.images.felix }}
  {{- with .Values.images.felix.pullPolicy }}
  imagePullPolicy: {{ . }}
  {{- end }}
  command: ["calico-node", "-felix"]
  env:
    - name: NODE_NAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    - name: FELIX_FELIXHOSTNAME
      valueFrom:
        fieldRef:
          fieldPath: spec.nodeName
    - name: DATASTORE_TYPE
      value: kubernetes
    - name: FELIX_DATASTORETYPE
      value: kubernetes
    - name: FELIX_USEINTERNALDATAPLANEDRIVER
      value: "false"
    - name: FELIX_DATAPLANEDRIVER
      value: /driver/contiv-felix-driver
    - name: FELIX_HEALTHENABLED
      value: "true"
    - name: FELIX_LOGSEVERITYSCREEN
      value: Info
    - name: FELIX_LOGFILEPATH
      value: none
    - name: FELIX_LOGSEVERITYSYS
      value: none
    {{- with .Values.felix.extraEnv }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  envFrom:
    # KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT, where the cluster IP of the API server is not served on the node.
    - configMapRef:
        name: kubernetes-services-endpoint
        optional: true
  ports:
    - name: agent-metrics
      containerPort: 9191
  startupProbe:
    httpGet:
      host: localhost
      path: /liveness
      port: 9099
    periodSeconds: 2
    failureThreshold: 60
  livenessProbe:
    httpGet:
      host: localhost
      path: /liveness
      port: 9099
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet:
      path: /readyz
      port: agent-metrics
    periodSeconds: 5
    timeoutSeconds: 5
  securityContext:
    # VPP's socket is root's.
    runAsUser: 0
    {{- include "contiv-agent.confined" . | nindent 4 }}
  resources:
    {{- toYaml .Values.felix.resources | nindent 4 }}
  volumeMounts:
    - name: driver
      mountPath: /driver
      readOnly: true
    - name: driver-config
      mountPath: /etc/contiv-agent
      readOnly: true
    - name: run-vpp
      mountPath: /run/vpp
    - name: run-agent
      mountPath: /run/contiv-agent
{{- end -}}
