{{- define "isotone.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 45 | trimSuffix "-" -}}
{{- else -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if contains $name .Release.Name -}}{{ .Release.Name | trunc 45 | trimSuffix "-" }}{{- else -}}{{ printf "%s-%s" .Release.Name $name | trunc 45 | trimSuffix "-" }}{{- end -}}
{{- end -}}
{{- end -}}

{{- define "isotone.selector" -}}
app.kubernetes.io/name: {{ default .Chart.Name .Values.nameOverride }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "isotone.labels" -}}
{{ include "isotone.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "isotone.image" -}}
{{- if not .Values.image.repository }}{{ fail "want image.repository: there is no published image, and docs/kubernetes.md says how to make one" }}{{ end -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "isotone.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}{{ .Values.serviceAccount.name | default (include "isotone.fullname" .) }}{{- else -}}{{ .Values.serviceAccount.name | default "default" }}{{- end -}}
{{- end -}}

{{/* Domain of the pods: POD.DOMAIN. */}}
{{- define "isotone.podDomain" -}}
{{ include "isotone.fullname" . }}-peers.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{/* Host of the service for clients. */}}
{{- define "isotone.clientHost" -}}
{{ include "isotone.fullname" . }}.{{ .Release.Namespace }}.svc.{{ .Values.clusterDomain }}
{{- end -}}

{{- define "isotone.nodeIDs" -}}
{{- range $i, $ordinal := keys .Values.nodeIDs | sortAlpha }}{{ if $i }},{{ end }}{{ $ordinal }}={{ index $.Values.nodeIDs $ordinal | int64 }}{{ end -}}
{{- end -}}

{{/* Where a node asks for a cluster: the service, and the pods of the initial members. */}}
{{- define "isotone.join" -}}
{{- $scheme := ternary "https://" "" .Values.clientTLS.require -}}
{{- $scheme }}{{ include "isotone.clientHost" . }}:{{ .Values.httpPort }}
{{- range $i := until (int .Values.initialReplicas) -}}
,{{ $scheme }}{{ include "isotone.fullname" $ }}-{{ $i }}.{{ include "isotone.podDomain" $ }}:{{ $.Values.httpPort }}
{{- end -}}
{{- end -}}

{{/* A name stands for one node, so {ordinal} cannot be mixed with exceptions. All ordinals that the chart allows
are listed: nodes that run have to know the names of those that an upgrade adds. */}}
{{- define "isotone.peerNames" -}}
{{- if .Values.nodeIDs -}}
{{- range $i := until 9 -}}
{{- if $i }},{{ end }}{{ index $.Values.nodeIDs (toString $i) | default (add1 $i) | int64 }}={{ include "isotone.fullname" $ }}-{{ $i }}.{{ include "isotone.podDomain" $ }}
{{- end -}}
{{- else -}}
{{ include "isotone.fullname" . }}-{ordinal}.{{ include "isotone.podDomain" . }}
{{- end -}}
{{- end -}}

{{- define "isotone.clientSecret" -}}
{{- if eq .Values.clientTLS.mode "secret" -}}{{ .Values.clientTLS.secretName }}{{- else -}}{{ include "isotone.fullname" . }}-client-tls{{- end -}}
{{- end -}}

{{/* Key of the authorities of clients in that secret, or nothing. */}}
{{- define "isotone.clientCA" -}}
{{- if .Values.clientTLS.clientCA -}}{{ .Values.clientTLS.clientCA }}{{- else if eq .Values.operator.mode "certificate" -}}ca.crt{{- end -}}
{{- end -}}

{{- define "isotone.hasHook" -}}
{{- if and .Values.reconcile.enabled (ne .Values.operator.mode "none") }}true{{ end -}}
{{- end -}}

{{- define "isotone.podSecurity" -}}
automountServiceAccountToken: false
serviceAccountName: {{ include "isotone.serviceAccount" . }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How an operator's command reaches the cluster: flags, environment, volumes. */}}
{{- define "isotone.operatorArgs" -}}
{{- if has .Values.operator.mode (list "certificate" "secret") -}}
- --endpoint=https://{{ include "isotone.clientHost" . }}:{{ .Values.httpPort }}
{{- if eq .Values.operator.mode "certificate" }}
- --ca=/tls/operator/ca.crt
- --cert=/tls/operator/tls.crt
- --key=/tls/operator/tls.key
{{- else }}
- --ca=/tls/operator/ca.crt
- --user={{ .Values.operator.user }}
{{- end }}
{{- else -}}
- --endpoint={{ include "isotone.clientHost" . }}:{{ .Values.httpPort }}
{{- end }}
{{- end -}}

{{/* The same for "isotone status", which takes addresses as arguments. */}}
{{- define "isotone.statusArgs" -}}
{{ include "isotone.operatorArgs" . | replace "--endpoint=" "" }}
{{- end -}}

{{- define "isotone.operatorPod" -}}
{{- if eq .Values.operator.mode "secret" }}
  env:
    - name: ISOTONE_PASSWORD
      valueFrom: {secretKeyRef: {name: {{ .Values.operator.secretName }}, key: {{ .Values.operator.secretKey }}}}
{{- end }}
  image: {{ include "isotone.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  securityContext: {{- toYaml .Values.securityContext | nindent 4 }}
  resources:
    requests: {cpu: 10m, memory: 32Mi}
    limits: {memory: 128Mi}
{{- if has .Values.operator.mode (list "certificate" "secret") }}
  volumeMounts: [{name: operator-tls, mountPath: /tls/operator, readOnly: true}]
{{- end }}
{{- end -}}

{{- define "isotone.operatorVolumes" -}}
{{- if eq .Values.operator.mode "certificate" }}
volumes: [{name: operator-tls, secret: {secretName: {{ include "isotone.fullname" . }}-operator-tls}}]
{{- else if eq .Values.operator.mode "secret" }}
volumes: [{name: operator-tls, secret: {secretName: {{ include "isotone.clientSecret" . }}, items: [{key: ca.crt, path: ca.crt}]}}]
{{- end }}
{{- end -}}
